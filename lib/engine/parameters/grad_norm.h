// The norm of all gradients of the whole model after they are summed, and the verdict of the step:
// whether the optimizer updates and by which factor it multiplies gradients (ops/optimizer.h).
// Every element counts once: one of the ranks that hold it adds it to the norm. All elements that
// any optimizer reads are checked, so that all ranks skip a step if one of them must.
#pragma once

#include <vector>

#include "comm/group.h"
#include "device/slab.h"
#include "engine/parameters/param_store.h"
#include "ops/context.h"
#include "ops/optimizer.h"
#include "plan/rules/resolve.h"

namespace trainctl {

class GradNorm {
 public:
  struct Rule {
    double limit = 0;  // of the norm; 0: none
    LossScaling scaling{};
  };
  /// `everyone`, the memory of `store` and `state`, which is on its device, must outlive this
  /// object.
  /// What a device needs is enqueued on `stream`.
  GradNorm(const ParamStore& store, Group& everyone, const Rule& rule, StepState* state,
           Stream& stream);
  GradNorm(const GradNorm&) = delete;
  GradNorm& operator=(const GradNorm&) = delete;

  /// Collective. Writes the verdict to the step state.
  void run(const OpContext& context);

 private:
  std::vector<SquareSum> parts(const ParamStore& store) const;

  Group& everyone_;
  Slab sums_;   // [ranks, 2] f64: of all ranks
  Tensor own_;  // [2] StepState::square_sums
  Calls<SquareSum> parts_;
  StepVerdict verdict_;
};

}  // namespace trainctl
