// The files of configs/devices and configs/software, which are part of the program.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct KnownFile {
  std::string_view name;  // "h100-sxm"
  std::string_view text;  // YAML
};

/// Each sorted by name.
std::span<const KnownFile> known_devices();
std::span<const KnownFile> known_software();
/// configs/software/shared.yaml, which files of software extend.
KnownFile shared_software();

std::vector<std::string> names_of(std::span<const KnownFile> files);
/// nullptr for an unknown name.
const KnownFile* find_known(std::span<const KnownFile> files, std::string_view name);

}  // namespace trainctl
