// Places layers on pipeline stages and model chunks, or reports why that is not possible: evenly,
// by a stage text, or so that the most expensive chunk costs least.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"
#include "plan/rules/check.h"
#include "plan/tables/splits.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

/// Places the layers by the configured rule: evenly (Megatron), with given first and last counts,
/// with embedding and loss counted as layers, by a stage text (pipeline.layout, megatron.core
/// PipelineParallelLayerLayout), so that the largest FLOPs of a chunk are minimal (pipeline.layout:
/// auto), or by MindSpore's min((l + offset) / (L / P), P - 1) with parallel_mode
/// semi_auto_parallel or auto_parallel, or pipeline.offset. On an error, reports it to `check` and
/// returns an empty map.
StageMap make_stage_map(const Config& config, Check& check);

/// Parses parallel.pipeline.layout (megatron.core PipelineParallelLayerLayout) to the letters of
/// each stage, in model order: "Et*3|t*4|(tt|)*2tL". E embedding, t layer, m multi-token
/// prediction, L loss, | between stages; x*n and (..)*n repeat, commas and spaces are ignored.
/// Expands repetitions and checks only the syntax. At most 1,000,000 letters.
ParsedList<std::string> parse_stage_layout(std::string_view text);

/// The value of parallel.pipeline.layout that requests balanced_counts().
inline constexpr std::string_view balanced_layout = "auto";

/// Divides neighbouring layers with these costs into `parts` parts, so that the most expensive part
/// is cheapest; the last part costs `last` more. Returns the number of layers of each part. Among
/// equally good divisions, the later parts have fewer layers. A part is empty only if there are
/// fewer layers than parts.
std::vector<std::int64_t> balanced_counts(const std::vector<double>& costs, double last,
                                          std::int64_t parts);

}  // namespace trainctl
