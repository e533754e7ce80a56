// The norm of all gradients over the whole model, once they are summed, and the step's verdict:
// whether the optimizer updates and by what factor it multiplies gradients (ops/step_verdict.h).
// Every element counts once: of all ranks that hold it one adds it to the norm. Whatever any
// optimizer reads is looked at, so that all ranks leave a step out where one of them must.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/world.h"
#include "engine/parameters/param_store.h"
#include "ops/context.h"
#include "ops/step_verdict.h"
#include "plan/rules/loss_scaling.h"

namespace trainctl {

class GradNorm {
 public:
  struct Rule {
    double limit = 0;  // of the norm; 0: none
    LossScaling scaling{};
  };
  /// `everyone`, `state` and the memory of `store` must outlive this. Sets the loss scale that
  /// `state` begins with.
  GradNorm(const Plan& plan, const ParamStore& store, Group& everyone, const Rule& rule,
           StepState& state);
  GradNorm(const GradNorm&) = delete;
  GradNorm& operator=(const GradNorm&) = delete;

  /// Collective. The verdict is in the step state.
  void run(const OpContext& context);

 private:
  struct Part {
    Tensor gradients;
    std::size_t sum = 0;  // of StepState::square_sums
  };
  std::vector<Part> parts(const StagePlan& stage, const ParamStore& store) const;

  Group& everyone_;
  std::vector<Part> parts_;
  std::vector<double> sums_;  // [ranks, 2]
  StepVerdict verdict_;
};

}  // namespace trainctl
