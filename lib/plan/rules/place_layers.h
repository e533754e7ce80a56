// Places layers on pipeline stages and model chunks, or reports why they cannot be placed: evenly,
// by a stage text, or so that the most expensive part is cheapest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"
#include "plan/rules/check.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

/// Places the layers by the rule that the configuration selects: evenly (Megatron), with given
/// first and last counts, with embedding and loss counted as layers, by a stage text
/// (pipeline.layout, megatron.core PipelineParallelLayerLayout), so that the chunk with most FLOPs
/// has least (pipeline.layout: auto), or by MindSpore's min((l + offset)
/// / (L / P), P - 1) if parallel_mode is semi_auto_parallel or auto_parallel or pipeline.offset is
/// given. On an error, reports it to `check` and returns an empty map.
StageMap make_stage_map(const Config& config, Check& check);

/// The stage text of parallel.pipeline.layout (megatron.core PipelineParallelLayerLayout):
/// "Et*3|t*4|(tt|)*2tL". E embedding, t layer, m multi-token prediction, L loss, | between stages;
/// x*n and (..)*n repeat, commas and spaces are ignored.
struct StageLetters {
  std::vector<std::string> stages;  // letters of each, in model order
  std::string error;                // why the text cannot be read; empty if it can
};

/// Writes repetitions out; only the syntax is checked. At most 1,000,000 letters.
StageLetters parse_stage_layout(std::string_view text);

/// The text of parallel.pipeline.layout that asks for it.
inline constexpr std::string_view balanced_layout = "auto";

struct BalanceInput {
  std::vector<double> costs{};  // of the layers, in their order
  double last = 0;              // what the last part has besides
  std::int64_t parts = 1;
};

/// Layers of each part, in order. Of the ways that are equally good it is the one whose later parts
/// have fewer layers; a part is empty only where there are fewer layers than parts.
std::vector<std::int64_t> balanced_counts(const BalanceInput& input);

}  // namespace trainctl
