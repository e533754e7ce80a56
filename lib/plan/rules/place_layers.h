// Places the layers on pipeline stages and model chunks, or says why they cannot be placed.
#pragma once

#include "config/schema/config.h"
#include "plan/rules/check.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

/// Cuts the layers by the rule that the configuration asks for: even (Megatron), first and last
/// counts, embedding and loss counted as layers, a layout string
/// (megatron.core PipelineParallelLayerLayout), or MindSpore's min((l + offset) / (L / P), P - 1)
/// where parallel_mode is semi_auto_parallel or auto_parallel, or pipeline.offset is given. Adds
/// what is wrong to `check` and returns an empty map then.
StageMap make_stage_map(const Config& config, Check& check);

}  // namespace trainctl
