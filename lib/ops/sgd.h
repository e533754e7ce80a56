// SGD with momentum; g = grad * clip_coefficient. Decoupled decay, or coupled as in torch:
//   b = momentum b + g;  p -= lr (b + weight_decay p)
//   b = momentum b + g + weight_decay p;  p -= lr b
// With found_inf nothing is written. p may be bf16: it is then rounded at random
// (random_rounding.h).
#pragma once

#include "device/tensor.h"
#include "ops/calls.h"
#include "ops/random_rounding.h"
#include "ops/step_state.h"

namespace trainctl {

struct Sgd {
  Tensor parameter;   // [n] fp32 or bf16, updated
  Tensor gradient;    // [n] fp32 or bf16
  Tensor momentum{};  // optional [n] fp32, updated; absent when coefficient is 0
  Tensor compute{};   // optional [n] bf16 or fp16: the rounded new parameter, which is fp32
  float coefficient = 0;
  bool decay = false;
  bool coupled = false;
  RandomRounding rounding{};
  const StepState* state = nullptr;  // seed, step, learning_rate, weight_decay, clip_coefficient,
                                     // found_inf
};

constexpr std::int64_t elements_of(const Sgd& args) { return args.parameter.shape.numel(); }

void sgd(const OpContext& context, const Calls<Sgd>& calls);

}  // namespace trainctl
