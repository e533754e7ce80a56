// LayerNorm with the residual addition before it (Ba et al. 2016, eq. 4):
//   sum = x + residual (if given),  y = (sum - mean) * rstd * weight + bias,  rstd = 1/sqrt(var +
//   eps).
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct LayerNormForward {
  Tensor x;         // [rows, hidden] fp32, bf16 or fp16
  Tensor residual;  // optional, as x
  Tensor sum;       // as x; written only if residual is given
  Tensor weight;    // [hidden] fp32
  Tensor bias;      // [hidden] fp32
  Tensor y;         // as x, overwritten
  Tensor mean;      // [rows] fp32, overwritten
  Tensor rstd;      // [rows] fp32, overwritten
  float epsilon = 1e-5F;
};

struct LayerNormBackward {
  Tensor dy;  // [rows, hidden]
  Tensor x;   // the normalised input (sum, where there was a residual)
  Tensor weight, mean, rstd;
  Tensor
      d_residual;  // optional, as x: added to dx (the gradient that reaches `sum` by its other use)
  Tensor dx;       // as x, overwritten; may be the same memory as d_residual or dy
  Tensor dweight;  // [hidden] fp32, accumulated
  Tensor dbias;    // [hidden] fp32, accumulated
};

void layernorm_forward(const OpContext& context, const LayerNormForward& args);
void layernorm_backward(const OpContext& context, const LayerNormBackward& args);

}  // namespace trainctl
