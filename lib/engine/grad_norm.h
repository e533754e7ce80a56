// The norm of all gradients over the whole model, once they are summed, and the factor that clips
// them. Every element counts once: of all ranks that hold it one adds it.
#pragma once

#include <vector>

#include "comm/world.h"
#include "engine/param_store.h"
#include "ops/context.h"
#include "ops/step_state.h"

namespace trainctl {

class GradNorm {
 public:
  /// `model` are the ranks that hold one copy of the model, `everyone` all; which of them the sum
  /// goes over follows from the plan. They and the memory of `store` must outlive this.
  GradNorm(const Plan& plan, const ParamStore& store, Group& model, Group& everyone);

  /// Returns the norm, the same on every rank; sets the clip coefficient of `state` so that what
  /// the optimizer uses has at most norm `limit` (0: no limit). Collective.
  double run(const OpContext& context, StepState& state, double limit);

 private:
  std::vector<Tensor> counted_;  // gradients that this rank adds
  Group& group_;                 // one copy of the model, or everyone where each has a slice
  std::vector<double> squares_;  // by rank of group_
};

}  // namespace trainctl
