// Reads the figures of a device and of software, by name or from a file.
#pragma once

#include <string>
#include <string_view>

#include "config/devices/figures.h"
#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "config/yaml/surroundings.h"

namespace trainctl {

/// Adds each mistake of `text`, YAML of the form in docs/planning.md, to `diagnostics`; `name` is
/// the file's in their places. The figures are usable only if there is none.
DeviceFigures read_device(std::string_view text, const std::string& name, Diagnostics& diagnostics);
SoftwareFigures read_software(std::string_view text, const std::string& name,
                              Diagnostics& diagnostics);

/// YAML that read_device reads back to the same figures.
std::string write_device(const DeviceFigures& device);

/// The text that cluster.device or cluster.software names: of a known file, or `file_text`, which
/// was read from a file of this name. "": there is neither.
std::string_view device_text(const ClusterConfig& cluster);
std::string_view software_text(const ClusterConfig& cluster);

/// Whether cluster.device names a device of CUDA whose file has no mistakes.
bool names_gpu(const ClusterConfig& cluster);

/// Fills in ClusterConfig::device_text and software_text where the names are those of files that
/// `around` can load.
void load_figures(ClusterConfig& cluster, const Surroundings& around);

}  // namespace trainctl
