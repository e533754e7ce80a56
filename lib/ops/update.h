// One step of an elementwise optimizer; g = grad * clip_coefficient. The formulas are rules in
// update_rules.h. With found_inf nothing is written. The parameter and the states of some rules may
// be bf16: they are then rounded at random (random_rounding.h), after all was computed in fp32 from
// what is kept.
#pragma once

#include <array>

#include "base/kinds.h"
#include "device/tensor.h"
#include "ops/calls.h"
#include "ops/random_rounding.h"
#include "ops/step_state.h"

namespace trainctl {

/// What rules read besides the step state; each reads some of it.
struct UpdateConstants {
  float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;
  float momentum = 0;
  bool nesterov = false;
  bool coupled = false;                     // decay is added to the gradient
  float scale = 1;                          // times the learning rate, not the decay
  float rate_factor = 1, decay_factor = 1;  // times the learning rate and the decay of the step
};

struct Update {
  UpdateRule rule = UpdateRule::adamw;
  Tensor parameter;  // [n] fp32 or bf16, updated
  Tensor gradient;   // [n] fp32 or bf16
  /// Each [n], updated: as many as the rule keeps, fp32 or as it allows bf16.
  std::array<Tensor, 2> states{};
  Tensor compute{};  // optional [n] bf16 or fp16: the rounded new parameter, which is fp32
  UpdateConstants constants{};
  bool decay = false;  // apply state->weight_decay
  RandomRounding rounding{};
  const float* factor = nullptr;     // of the rule `scale`: device memory
  const StepState* state = nullptr;  // seed, step, learning_rate, weight_decay, bias corrections,
                                     // clip_coefficient, found_inf
};

constexpr std::int64_t elements_of(const Update& args) { return args.parameter.shape.numel(); }

/// All calls of a list have one rule.
void update(const OpContext& context, const Calls<Update>& calls);

}  // namespace trainctl
