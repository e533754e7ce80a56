// Which layers each pipeline stage and model chunk holds.
#pragma once

#include <cstdint>
#include <vector>

namespace trainctl {

/// One model chunk of one stage. Units are numbered over the whole model: 0 is the embedding, 1 to
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

}  // namespace trainctl
