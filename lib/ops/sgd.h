// SGD with momentum and decoupled decay; g = grad * clip_coefficient:
//   b = momentum b + g;  p -= lr (b + weight_decay p)
// With found_inf nothing is written.
#pragma once

#include "device/tensor.h"
#include "ops/calls.h"
#include "ops/step_state.h"

namespace trainctl {

struct Sgd {
  Tensor parameter;   // [n] fp32, updated
  Tensor gradient;    // [n] fp32 or bf16
  Tensor momentum{};  // optional [n] fp32, updated; absent when coefficient is 0
  Tensor compute{};   // optional [n] bf16 or fp16: the rounded new parameter
  float coefficient = 0;
  bool decay = false;
  const StepState* state = nullptr;  // learning_rate, weight_decay, clip_coefficient, found_inf
};

constexpr std::int64_t elements_of(const Sgd& args) { return args.parameter.shape.numel(); }

void sgd(const OpContext& context, const Calls<Sgd>& calls);

}  // namespace trainctl
