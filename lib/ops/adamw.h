// AdamW (Loshchilov and Hutter 2019, algorithm 2), fp32 state; g = grad * clip_coefficient:
//   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
//   p -= lr ( (m / bias_correction1) / (sqrt(v / bias_correction2) + eps) + weight_decay p )
// With found_inf nothing is written. Each of p, m and v may be bf16: it is then rounded at random
// (random_rounding.h), after all was computed in fp32 from what is kept.
#pragma once

#include "device/tensor.h"
#include "ops/calls.h"
#include "ops/random_rounding.h"
#include "ops/step_state.h"

namespace trainctl {

struct AdamW {
  Tensor parameter;  // [n] fp32 or bf16, updated
  Tensor gradient;   // [n] fp32 or bf16
  Tensor m, v;       // [n] each fp32 or bf16, updated
  Tensor compute{};  // optional [n] bf16 or fp16: the rounded new parameter, which is fp32
  float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;
  bool decay = false;  // apply state->weight_decay
  RandomRounding rounding{};
  const StepState* state = nullptr;  // seed, step, learning_rate, weight_decay, bias corrections,
                                     // clip_coefficient, found_inf
};

constexpr std::int64_t elements_of(const AdamW& args) { return args.parameter.shape.numel(); }

void adamw(const OpContext& context, const Calls<AdamW>& calls);

}  // namespace trainctl
