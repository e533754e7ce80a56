// What becomes of a step once every rank's sums of squares are there. All ranks have the same sums,
// so all decide alike:
//   found_inf = some sum is not finite
//   grad_norm = sqrt(sum of the first column) / loss_scale
//   clip_coefficient = min(1, limit / (grad_norm + 1e-6)) / loss_scale
// and the loss scale moves as Megatron-Core's DynamicGradScaler does.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"
#include "ops/step_state.h"

namespace trainctl {

/// With found_inf hysteresis falls by one, and at 0 the scale is multiplied by backoff, but not
/// below `least`; after `window` updates in a row it is multiplied by growth, while it stays below
/// 2^64, and hysteresis is reset.
struct StepVerdict {
  Tensor square_sums;  // [ranks, 2] f64: StepState::square_sums of every rank
  double limit = 0;    // of the norm; 0: none
  double growth = 1;   // 1 and 1: the scale is constant
  double backoff = 1;
  double least = 1;
  std::int64_t window = 1;
  std::int64_t hysteresis = 1;
  StepState* state = nullptr;  // updated
};

void step_verdict(const OpContext& context, const StepVerdict& args);

}  // namespace trainctl
