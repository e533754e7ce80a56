// GELU, tanh form (Hendrycks and Gimpel 2016): y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct GeluForward {
  Tensor x;  // any shape, fp32, bf16 or fp16
  Tensor y;  // as x, overwritten
};

struct GeluBackward {
  Tensor x;
  Tensor dy;
  Tensor dx;  // as x, overwritten; may be the same memory as dy
};

void gelu_forward(const OpContext& context, const GeluForward& args);
void gelu_backward(const OpContext& context, const GeluBackward& args);

}  // namespace trainctl
