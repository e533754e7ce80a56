// Places layers on pipeline stages and model chunks, or reports why they cannot be placed.
#pragma once

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

}  // namespace trainctl
