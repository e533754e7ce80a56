// Figures of a device and of the software that uses it: the contents of the files in
// configs/devices and configs/software (docs/planning.md says what each figure means).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/collectives.h"
#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// The kind of source that a predicted time rests on.
enum class Trust : std::uint8_t {
  measured_here,  // by `trainctl bench device` on this machine
  device_table,   // constants fitted to tables of measurements of this type of device
  data_sheet,     // nothing measured
};
/// "device table"
const char* name_of(Trust trust);
/// The expected error of the time of a step, as a share: 0.03, 0.08, 0.30.
double expected_error(Trust trust);

struct ProductTile {
  std::int64_t rows = 0, columns = 0;
  double quality = 1;  // speed relative to the first tile
};

/// A product that was measured: y [rows, columns] = a [rows, inner] x b [inner, columns].
struct ProductTime {
  std::int64_t rows = 0, columns = 0, inner = 0;
  bool accumulates = false;  // y is fp32 and is added to
  double seconds = 0;
  double beside = 1;  // seconds / the formula's; filled in by compare_table (plan/prices)
};

/// Products of one type (plan/prices/price_list.h has the formula).
struct ProductFigures {
  double peak = 0;     // FLOP/s of the data sheet
  double reached = 1;  // share of it by endless products
  double wave = 0;     // 1: the last wave of tiles takes as long as a full one; 0: its share
  double half = 0;     // length of the sums at which a tile is half as fast
  double launch = 0;   // seconds
  std::vector<ProductTile> tiles;
  std::vector<ProductTime> table;
  bool guessed = false;  // the file has none of this type: from those of the other
};

/// Causal attention that was measured, over one sequence of `keys` tokens.
struct AttentionTime {
  std::int64_t keys = 0, heads = 0, head_dim = 0;
  bool backward = false;
  double seconds = 0;
  double beside = 1;  // as ProductTime's
};

/// One kernel of attention.
struct AttentionFigures {
  double forward = 0;      // share of the peak that endless sequences reach
  double half_length = 0;  // keys of a sequence at which it is half as fast
  double head_64 = 1;      // factor for heads of 64 features
  double launch = 0;       // seconds
  double backward = 1;     // speed of the backward pass relative to the forward pass
  std::vector<AttentionTime> table{};
};

/// Seconds of one collective by its bytes, log-log between the sizes: of the whole tensor, on one
/// number of ranks that one level joins.
struct CollectiveTable {
  std::vector<double> bytes, seconds;
};

struct NetworkFigures {
  double bandwidth = 0;    // bytes/s of a link in one direction
  double latency = 0;      // seconds
  std::int64_t links = 1;  // of a host
};

struct DeviceFigures {
  std::string name;
  bool cuda = true;
  Trust trust = Trust::device_table;
  double memory_gib = 0;
  double memory_bandwidth = 0;  // bytes/s of the data sheet
  double memory_reached = 1;
  std::int64_t processors = 1;
  std::map<std::string, ProductFigures> products;     // by "bf16", "fp32"
  std::map<std::string, AttentionFigures> attention;  // by kernel
  double sustained = 1;   // speed of products and attention over minutes, relative to a burst
  double contention = 0;  // share of the processors that a collective takes
  double link = 0;        // bytes/s between the devices of a host, in one direction
  double link_latency = 0;
  std::map<GroupOperation, std::map<std::int64_t, CollectiveTable>> collectives;  // by ranks
  NetworkFigures network;
  std::int64_t host_ranks = 1;
  double host_bandwidth = 0;                     // bytes/s of copies to and from the host
  std::optional<double> hours_between_failures;  // of one device
  std::map<std::string, std::string> sources;    // of the figures, by their key
};

/// How software executes a layout. Factors are fitted on published steps.
struct SoftwareFigures {
  std::string name;
  std::string attention;       // kernel of the device's file; "scores": a kernel for each step
  double attention_speed = 1;  // relative to that kernel
  double attention_64 = 1;     // of heads of 64 features, relative to the kernel's head_64
  double overhead = 0;         // on the seconds of F, B and W
  double elements = 1;         // bytes of elementwise operations, relative to the least
  double launch = 0;           // seconds of each of them
  double logit_bytes = 8;      // read and written for each logit
  double score_bytes = 14;     // for each score, where attention is "scores"
  double collectives = 1;      // seconds of those in layers, relative to the device's table
  double tensor_rest = 0;      // share of overlapped collectives in layers that is waited for
  double sums_rest = 0;        // share of the seconds of overlapped sums that is added
  double network_share = 1;    // of the bandwidth between hosts
  double network_latency = 0;  // seconds of each round, in addition to those of the network
  double jitter = 0;           // share of a step that each doubling of the hosts adds
  double fixed = 0;            // seconds of a step
  bool fuses_inputs = false;   // q, k and v are one product, and so are gate and up
  bool overlaps_sums = true;   // gradients are summed during the backward pass
  std::map<std::string, std::string> sources;
};

// The files of configs/devices and configs/software, which are part of the program.

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

// Reads the figures of a device and of software, by name or from a file.

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
