// A layer of experts as a whole, on the CPU or a device: what its step costs beside the matrix
// products that a plain MLP makes with as many parameters for each token.
#pragma once

#include <vector>

#include "bench/figures.h"
#include "ops/context.h"
#include "plan/plan.h"

namespace trainctl {

/// Seconds of each round, in which all take turns.
struct ExpertLayerSpeed {
  std::vector<double> step;      // forward and both backward passes of the layer
  std::vector<double> products;  // of the layer's own step
  std::vector<double> dense;     // the nine (six) products of an MLP of the active width
  /// Of step and dense, round by round.
  std::vector<double> ratios() const { return ratios_of(step, dense); }
};

/// A layer of the plan's model on one micro-batch of one rank, which holds all experts; `rounds`
/// are counted after one that warms up. The plan's model has experts. `ops` is on the plan's
/// device.
ExpertLayerSpeed measure_expert_layer(const Plan& plan, const OpContext& ops, int rounds);

}  // namespace trainctl
