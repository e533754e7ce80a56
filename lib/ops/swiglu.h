// SwiGLU (Shazeer 2020): y = silu(gate) * up, silu(x) = x / (1 + exp(-x)).
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct SwigluForward {
  Tensor gate;  // any shape, fp32, bf16 or fp16
  Tensor up;
  Tensor y;  // overwritten
};

struct SwigluBackward {
  Tensor gate;
  Tensor up;
  Tensor dy;
  Tensor dgate;  // overwritten; may be the same memory as dy
  Tensor dup;    // overwritten
};

void swiglu_forward(const OpContext& context, const SwigluForward& args);
void swiglu_backward(const OpContext& context, const SwigluBackward& args);

}  // namespace trainctl
