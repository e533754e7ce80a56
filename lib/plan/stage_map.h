// Which layers each pipeline stage and model chunk holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace trainctl {

class Check;

/// A model chunk of one stage. Units are numbered over the whole model: 0 is the embedding, 1 to
/// `layers` the blocks, layers + 1 the head.
struct ChunkLayers {
  std::int64_t first = 0;  // layer
  std::int64_t count = 0;  // layers; 0 is legal (a stage of only the embedding or the head)
  bool embedding = false;
  bool head = false;
  int first_unit = 0;  // units [first_unit, end_unit)
  int end_unit = 0;
};

struct StageMap {
  int stages = 1;
  int chunks = 1;                // per stage
  std::vector<ChunkLayers> all;  // [stage * chunks + chunk]
  const ChunkLayers& at(int stage, int chunk) const {
    return all[static_cast<std::size_t>(stage * chunks + chunk)];
  }
};

/// Cuts the layers by the rule that the configuration asks for: even (Megatron), first and last
/// counts, embedding and loss counted as layers, a layout string
/// (megatron.core PipelineParallelLayerLayout), or MindSpore's min((l + offset) / (L / P), P - 1)
/// where parallel_mode is semi_auto_parallel or auto_parallel, or pipeline.offset is given. Adds
/// what is wrong to `check` and returns an empty map then.
StageMap make_stage_map(const Config& config, Check& check);

}  // namespace trainctl
