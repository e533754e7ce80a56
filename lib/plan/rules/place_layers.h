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

/// The letters of each stage, in model order, in the stage text of parallel.pipeline.layout
/// (megatron.core PipelineParallelLayerLayout): "Et*3|t*4|(tt|)*2tL". E embedding, t layer, m
/// multi-token prediction, L loss, | between stages; x*n and (..)*n repeat, commas and spaces are
/// ignored. Writes repetitions out; only the syntax is checked. At most 1,000,000 letters.
ParsedList<std::string> parse_stage_layout(std::string_view text);

/// The text of parallel.pipeline.layout that asks for balanced_counts().
inline constexpr std::string_view balanced_layout = "auto";

/// Deals neighbouring layers with these costs to `parts` parts, so that the most expensive part is
/// cheapest; the last part costs `last` more. Returns the layers of each part, in order. Of the
/// ways that are equally good it is the one whose later parts have fewer layers; a part is empty
/// only where there are fewer layers than parts.
std::vector<std::int64_t> balanced_counts(const std::vector<double>& costs, double last,
                                          std::int64_t parts);

}  // namespace trainctl
