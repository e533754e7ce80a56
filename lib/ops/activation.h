// The activation of a feed-forward layer: y = act(x), or gated y = act(x) * (up + offset). With a
// limit L the gate is min(x, L) and up lies in [-L, L]; a gradient passes where the limit does not
// act. Its functions are in activation_functions.h.
#pragma once

#include "base/kinds.h"
#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

/// Of a gated activation alone.
struct GateForm {
  float offset = 0;  // added to up
  float limit = 0;   // L; 0: none
  bool is_plain() const { return offset == 0 && limit == 0; }
  bool operator==(const GateForm&) const = default;
};

struct ActivationForward {
  Activation kind = Activation::gelu;
  Tensor x;     // any shape, fp32, bf16 or fp16; gated: the gate
  Tensor y;     // as x, overwritten
  Tensor up{};  // as x; absent: not gated
  GateForm form{};
};

struct ActivationBackward {
  Activation kind = Activation::gelu;
  Tensor x;
  Tensor dy;
  Tensor dx;     // as x, overwritten; may be the same memory as dy
  Tensor up{};   // as x; absent: not gated
  Tensor dup{};  // gated: as x, overwritten; it may be the memory of dy where dx is not
  GateForm form{};
};

void activation_forward(const OpContext& context, const ActivationForward& args);
void activation_backward(const OpContext& context, const ActivationBackward& args);

}  // namespace trainctl
