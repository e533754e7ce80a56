// The activation of a feed-forward layer: y = act(x), or gated y = act(x) * up. Its functions are
// in activation_functions.h.
#pragma once

#include "base/kinds.h"
#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct ActivationForward {
  Activation kind = Activation::gelu;
  Tensor x;     // any shape, fp32, bf16 or fp16; gated: the gate
  Tensor y;     // as x, overwritten
  Tensor up{};  // as x; absent: not gated
};

struct ActivationBackward {
  Activation kind = Activation::gelu;
  Tensor x;
  Tensor dy;
  Tensor dx;     // as x, overwritten; may be the same memory as dy
  Tensor up{};   // as x; absent: not gated
  Tensor dup{};  // gated: as x, overwritten
};

void activation_forward(const OpContext& context, const ActivationForward& args);
void activation_backward(const OpContext& context, const ActivationBackward& args);

}  // namespace trainctl
