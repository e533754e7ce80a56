// How the ranks tell each other the largest score of each head of attention
// (optimizer.qk_clip_threshold): each sends a row of heads for every layer of its stage, and as
// many rows as the stage with most layers has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace trainctl {

/// Layers of the model, in the order of their rows.
inline std::vector<std::int64_t> scored_layers(const Plan& plan, const StagePlan& stage) {
  std::vector<std::int64_t> layers;
  for (const int unit : first_blocks(stage.units, plan.model.layers, plan.model.layers)) {
    layers.push_back(unit - 1);
  }
  return layers;
}

/// Numbers that each rank sends, of 4 bytes.
inline std::int64_t scores_of_rank(const Plan& plan) {
  std::int64_t most = 0;
  for (const StagePlan& stage : plan.stages) {
    most = std::max(most, count_blocks(stage.units, plan.model.layers));
  }
  return most * plan.model.heads;
}

}  // namespace trainctl
