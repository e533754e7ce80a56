// What changes from step to step, in one small struct in device memory that kernels read, so that
// nothing in a step depends on a host argument and no synchronisation is needed. The engine writes
// it before each step.
#pragma once

#include <cstdint>

namespace trainctl {

struct StepState {
  std::uint64_t seed = 0;  // of the run; dropout keys derive from (seed, step, site)
  std::int64_t step = 0;   // zero-based index of the running step
  double square_sum = 0;   // sum of squares of the gradient, before clipping
  double loss_sum = 0;     // sum of weighted token losses of this rank in this step
  float learning_rate = 0;
  float weight_decay = 0;      // of the parameters that decay
  float bias_correction1 = 1;  // 1 - beta1^(step + 1)
  float bias_correction2 = 1;  // 1 - beta2^(step + 1)
  float clip_coefficient = 1;  // multiplies every gradient in the optimizer
  float loss_scale = 1;        // 1 / (sum of loss weights of the global batch)
};

}  // namespace trainctl
