// The layouts that `plan --search` chooses from.
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
struct RunStrategy {
  std::int64_t tensor_parallel = 1, context_parallel = 1, expert_parallel = 1;
  std::int64_t stages = 1, chunks = 1;  // of the pipeline, and per stage
  std::int64_t micro_batch_size = 1;
  int optimizer_level = 0;  // of the parallel optimizer; 0: off
  // Whether embedding and loss count as a layer each where layers are divided among stages.
  bool counts_embedding = false, counts_loss = false;
  std::int64_t first_layers = 0, last_layers = 0;  // of these stages; 0: as the others
  PipelineScheduler scheduler = PipelineScheduler::one_f_one_b;
  CpCommType cp_comm_type = CpCommType::p2p;  // of all layers
  std::int64_t cp_heads = 1;                  // ranks that exchange heads, with a2a+p2p
  bool tp_overlap = false;                    // of collectives with products
  auto operator<=>(const RunStrategy&) const = default;
};

/// Which of them are searched.
struct FreeKeys {
  bool tensor = false, sequence = false, context = false, experts = false, stages = false;
  bool chunks = false, micro_batch = false, optimizer = false, recompute = false;
  bool cut = false;  // how many layers each stage has
  bool scheduler = false, cp_comm_type = false, tp_overlap = false;
};

/// The keys that a search may choose, by the word that options and pages have for it.
struct SearchedKey {
  std::string_view word;
  bool FreeKeys::*free = nullptr;
  std::span<const std::string_view> paths{};  // keys of the file; any of them gives it
};
std::span<const SearchedKey> searched_keys();

/// Words of searched keys: those that are searched although the file gives them, and those that
/// stay as the file or the default has them.
struct KeyChoice {
  std::vector<std::string> freed{}, fixed{};
};
/// Searched are the keys that are freed, and of the others those that the file and its options
/// leave out and that are not fixed. Experts are searched only where the model has some.
FreeKeys free_keys(const Config& config, const SourceMap& sources, const KeyChoice& choice = {});
/// "tensor_parallel, recompute"; "" where nothing is searched.
std::string searched_text(const FreeKeys& free);

/// A key that is searched by its words, in addition to the sizes. Its word is a member of the
/// layout.
struct StrategyAxis {
  std::string_view key;                 // in decisions and JSON
  std::string_view label;               // before the word in the text of a layout; may be empty
  std::vector<std::string_view> paths;  // any of these in the file or the options fixes it
  bool FreeKeys::*free;                 // where none is
  std::int64_t max_ranks;  // where the search has more, the word stays as it is by default
  /// Whether a layout of these sizes has a choice.
  bool (*applies)(const RunStrategy& layout);
  /// The layout with each word that its sizes allow, the default first.
  std::vector<RunStrategy> (*values)(const Config& config, const RunStrategy& layout);
  void (*take_given)(const ParallelConfig& given, RunStrategy& layout);
  void (*set)(const RunStrategy& layout, ParallelConfig& parallel);
  std::string (*word)(const RunStrategy& layout);
};
std::span<const StrategyAxis> layout_axes();

/// Keys and sections that change the cost of a step and that a search of this number of ranks does
/// not set, though the file does not give them: another value may be faster. In the order of the
/// schema; those of axes come last.
std::vector<std::string_view> unsearched_keys(std::int64_t world = 1);
/// "parallel.rank_order, offload".
std::string unsearched_text(std::int64_t world = 1);

/// The most ranks with which a search chooses the key of this word.
std::int64_t max_ranks_of(std::string_view word);
/// Without the keys that are not searched with this number of ranks.
FreeKeys within_ranks(FreeKeys free, std::int64_t world);

/// Every layout whose sizes divide what they split, in ascending order. Rules may still refuse it.
/// Stages have equal numbers of layers, embedding and loss counted or not, or the first and the
/// last one have other numbers: of these pairs the four with the smallest largest stage. Each comes
/// with every word of each free axis that applies.
std::vector<RunStrategy> layouts_of(const Config& config, const FreeKeys& free, std::int64_t world);

/// The configuration in the layout. Sequence parallelism is on where tensor parallelism is, unless
/// it is given.
Config with_layout(const Config& config, const FreeKeys& free, const RunStrategy& layout);

/// "tp 2 pp 4 x 2 dp 8 micro-batch 1 level2", without sizes of 1.
std::string layout_text(const RunStrategy& layout, std::int64_t world);

}  // namespace trainctl
