// Figures of a device and of software that runs on it: the contents of the files in configs/devices
// and configs/software (docs/planning.md explains each figure).
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
#include "config/schema/words.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// The kind of measurements behind a predicted time.
///   measured here  by `trainctl bench device` on this machine
///   device table   constants fitted to tables of measurements of this type of device
///   data sheet     no measurements, only the data sheet
using Trust = OneOf<"measured here|device table|data sheet">;
/// The expected relative error of the time of a step: 0.03, 0.08 or 0.30.
double expected_error(Trust trust);

struct ProductTile {
  std::int64_t rows = 0, columns = 0;
  double quality = 1;  // speed relative to the first tile
};

/// A measured matrix product: y [rows, columns] = a [rows, inner] x b [inner, columns].
struct ProductTime {
  std::int64_t rows = 0, columns = 0, inner = 0;
  bool accumulates = false;  // the product is added to y, which is fp32
  double seconds = 0;
  double beside = 1;  // seconds / seconds of the formula; filled in by compare_table (plan/prices)
};

/// Figures of matrix products of one type (plan/prices/price_list.h has the formula).
struct ProductFigures {
  double peak = 0;     // FLOP/s of the data sheet
  double reached = 1;  // share of `peak` that very large products reach
  double wave = 0;     // how far a partial last wave of tiles takes the time of a full one, 0 to 1
  double half = 0;     // inner length at which a tile is half as fast
  double launch = 0;   // seconds per message
  std::vector<ProductTile> tiles;
  std::vector<ProductTime> table;
  bool guessed = false;  // derived from another type, since the file lacks this one
};

/// A measured causal attention over one sequence of `keys` tokens.
struct AttentionTime {
  std::int64_t keys = 0, heads = 0, head_dim = 0;
  bool backward = false;
  double seconds = 0;
  double beside = 1;  // as in ProductTime
};

/// Figures of one attention kernel.
struct AttentionFigures {
  double forward = 0;      // share of the peak that very long sequences reach
  double half_length = 0;  // keys of a sequence at which the kernel is half as fast
  double head_64 = 1;      // speed for heads of 64 features, relative to larger heads
  double launch = 0;       // seconds per message
  double backward = 1;     // speed of the backward pass relative to the forward pass
  std::vector<AttentionTime> table{};
};

/// Seconds of a collective by the bytes of the whole tensor, interpolated log-log. A table is for
/// one number of ranks that one level of the network joins.
struct CollectiveTable {
  std::vector<double> bytes, seconds;
};

struct DeviceFigures {
  std::string name;
  bool cuda = true;
  Trust trust = "device table";
  double memory_gib = 0;
  double memory_bandwidth = 0;  // bytes/s in the data sheet
  double memory_reached = 1;
  std::int64_t processors = 1;
  std::map<std::string, ProductFigures> products;     // key: "bf16" or "fp32"
  std::map<std::string, AttentionFigures> attention;  // key: name of the kernel
  double sustained = 1;   // sustained speed of products and attention, relative to a burst
  double contention = 0;  // share of the processors that a collective uses
  double link = 0;        // bytes/s between two devices of a host, in one direction
  double link_latency = 0;
  std::map<GroupOperation, std::map<std::int64_t, CollectiveTable>> collectives;  // by ranks
  double network_bandwidth = 0;    // bytes/s of a link between hosts in one direction
  double network_latency = 0;      // seconds per message between hosts
  std::int64_t network_links = 1;  // links per host
  std::int64_t host_ranks = 1;
  double host_bandwidth = 0;                     // bytes/s of copies to and from the host
  std::optional<double> hours_between_failures;  // mean for one device
  std::map<std::string, std::string> sources;    // source of a figure by its key
};

/// How software executes a layout. The factors are fitted to published steps.
struct SoftwareFigures {
  std::string name;
  std::string attention;       // kernel of the device's file, or "scores": a kernel for each step
  double attention_speed = 1;  // speed relative to that kernel
  double attention_64 = 1;     // speed for heads of 64 features, relative to the kernel's head_64
  double overhead = 0;         // share added to the seconds of forward and backward passes
  double elements = 1;         // bytes of elementwise operations, relative to the minimum
  double launch = 0;           // seconds to launch an elementwise operation
  double logit_bytes = 8;      // bytes read and written per logit
  double score_bytes = 14;     // bytes read and written per score, if attention is "scores"
  double collectives = 1;      // seconds of collectives in layers, relative to the device's table
  double tensor_rest = 0;      // share of overlapped collectives in layers that is not hidden
  double sums_rest = 0;        // share of the seconds of overlapped sums that is not hidden
  double network_share = 1;    // usable share of the bandwidth between hosts
  double network_latency = 0;  // seconds per round, added to the latency of the network
  double jitter = 0;           // share of a step that each doubling of the number of hosts adds
  double fixed = 0;            // seconds added to each step
  bool fuses_inputs = false;   // q, k and v are computed by one product, and so are gate and up
  bool overlaps_sums = true;   // gradients are summed during the backward pass
  std::map<std::string, std::string> sources;
};

// The files of configs/devices and configs/software, embedded in the program.

struct KnownFile {
  std::string_view name;  // such as "h100-sxm"
  std::string_view text;  // YAML text
};

/// The embedded files, sorted by name.
std::span<const KnownFile> known_devices();
std::span<const KnownFile> known_software();
/// configs/software/shared.yaml, which the other files of configs/software extend.
KnownFile shared_software();

std::vector<std::string> names_of(std::span<const KnownFile> files);
/// The file with this name; nullptr if there is none.
const KnownFile* find_known(std::span<const KnownFile> files, std::string_view name);

// Reads the figures of a device or of software, by name or from a file.

/// Parses `text`, YAML of the form in docs/planning.md. Adds each mistake to `diagnostics`, with
/// `name` as the name of the file. The figures are usable only if there is no mistake.
DeviceFigures read_device(std::string_view text, const std::string& name, Diagnostics& diagnostics);
SoftwareFigures read_software(std::string_view text, const std::string& name,
                              Diagnostics& diagnostics);

/// YAML that read_device reads back to the same figures.
std::string write_device(const DeviceFigures& device);

/// The text of cluster.device or cluster.software: that of a known file, or of the file that was
/// read with the configuration; "" if there is neither.
std::string_view device_text(const ClusterConfig& cluster);
std::string_view software_text(const ClusterConfig& cluster);

/// Whether cluster.device names a CUDA device whose file has no mistakes.
bool names_gpu(const ClusterConfig& cluster);

/// Loads the files named by cluster.device and cluster.software, if `around` can load them, into
/// ClusterConfig::device_text and software_text.
void load_figures(ClusterConfig& cluster, const Surroundings& around);

}  // namespace trainctl
