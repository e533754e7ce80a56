// The layouts among which `plan --search` chooses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/read/read.h"
#include "config/schema/config.h"

namespace trainctl {

/// Values of the keys that a search may set.
struct RunArrangement {
  std::int64_t tensor_parallel = 1, context_parallel = 1, expert_parallel = 1;
  std::int64_t stages = 1, chunks = 1;  // pipeline stages; chunks per stage
  std::int64_t micro_batch_size = 1;
  int optimizer_level = 0;  // level of the parallel optimizer; 0 if it is off
  // Whether embedding and loss count as one layer each when layers are divided among stages.
  bool counts_embedding = false, counts_loss = false;
  std::int64_t first_layers = 0, last_layers = 0;  // layers there; as other stages if 0
  PipelineScheduler scheduler = PipelineScheduler::one_f_one_b;
  CpCommType cp_comm_type = CpCommType::p2p;  // one type for all layers
  std::int64_t cp_heads = 1;                  // ranks that exchange heads with cp_comm_type a2a+p2p
  bool tp_overlap = false;                    // overlap of collectives with matrix products
  auto operator<=>(const RunArrangement&) const = default;
};

/// The keys of RunArrangement that the search chooses.
struct FreeKeys {
  bool tensor = false, sequence = false, context = false, experts = false, stages = false;
  bool chunks = false, micro_batch = false, optimizer = false, recompute = false;
  bool cut = false;  // number of layers of each stage
  bool scheduler = false, cp_comm_type = false, tp_overlap = false;
};

/// A key that a search may choose, by its word in options and on pages.
struct SearchedKey {
  std::string_view word;
  bool FreeKeys::*free = nullptr;
  std::span<const std::string_view> paths{};  // keys of the file that set it
};
std::span<const SearchedKey> searched_keys();

/// Words of keys: `freed` ones are searched although the file sets them; `fixed` ones keep the
/// value of the file or the default.
struct KeyChoice {
  std::vector<std::string> freed{}, fixed{};
};
/// The keys to search: all freed ones, and those that are neither fixed nor set by the file or its
/// options. Keys of experts are searched only if the model has experts.
FreeKeys free_keys(const Config& config, const SourceMap& sources, const KeyChoice& choice = {});
/// The words of the searched keys, "tensor_parallel, recompute"; "" if none is searched.
std::string searched_text(const FreeKeys& free);

/// A searched key whose values are words instead of sizes. Its value is a member of RunArrangement.
struct ArrangementAxis {
  std::string_view key;                 // name in decisions and JSON
  std::string_view label;               // text before the word of a layout; may be empty
  std::vector<std::string_view> paths;  // keys of the file or options, each of which fixes the axis
  bool FreeKeys::*free;                 // member that tells whether the axis is searched
  std::int64_t max_ranks;               // with more ranks, the default word is kept
  /// Whether several words apply to a layout of these sizes.
  bool (*applies)(const RunArrangement& layout);
  /// The layout with each word that its sizes allow, the default first.
  std::vector<RunArrangement> (*values)(const Config& config, const RunArrangement& layout);
  void (*take_given)(const ParallelConfig& given, RunArrangement& layout);
  void (*set)(const RunArrangement& layout, ParallelConfig& parallel);
  std::string (*word)(const RunArrangement& layout);
};
std::span<const ArrangementAxis> layout_axes();

/// Keys and sections that affect the cost of a step and are not set by a search of this number of
/// ranks, even if the file does not give them: another value may be faster. In the order of the
/// schema, axes last.
std::vector<std::string_view> unsearched_keys(std::int64_t world = 1);
/// The unsearched_keys() as text: "parallel.rank_order, offload".
std::string unsearched_text(std::int64_t world = 1);

/// The most ranks with which a search chooses the key of this word.
std::int64_t max_ranks_of(std::string_view word);
/// Removes the keys that are not searched with this number of ranks.
FreeKeys within_ranks(FreeKeys free, std::int64_t world);

/// All layouts whose sizes divide the quantities that they split, ascending. Rules may still refuse
/// a layout. Stages have equal numbers of layers, with or without counting embedding and loss, or
/// the first and last stage differ: of these pairs the four whose largest stage is smallest. Each
/// layout comes with every word of each free axis that applies.
std::vector<RunArrangement> layouts_of(const Config& config, const FreeKeys& free,
                                       std::int64_t world);

/// The configuration with the layout. Sequence parallelism is on if tensor parallelism is, unless
/// the file sets it.
Config with_layout(const Config& config, const FreeKeys& free, const RunArrangement& layout);

/// Text such as "tp 2 pp 4 x 2 dp 8 micro-batch 1 level2", without sizes of 1.
std::string layout_text(const RunArrangement& layout, std::int64_t world);

}  // namespace trainctl
