// RMSNorm with the residual addition before it (Zhang and Sennrich 2019, eq. 4):
//   sum = x + residual (if given),  y = sum * rstd * weight,  rstd = 1/sqrt(mean(sum^2) + eps).
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct RmsNormForward {
  Tensor x;         // [rows, hidden] fp32, bf16 or fp16
  Tensor residual;  // optional, as x
  Tensor sum;       // as x; written only if residual is given
  Tensor weight;    // [hidden] fp32
  Tensor y;         // as x, overwritten
  Tensor rstd;      // [rows] fp32, overwritten
  float epsilon = 1e-5F;
};

struct RmsNormBackward {
  Tensor dy;  // [rows, hidden]
  Tensor x;   // the normalised input (sum, where there was a residual)
  Tensor weight, rstd;
  Tensor d_residual;  // optional, as x: added to dx
  Tensor dx;          // as x, overwritten; may be the same memory as d_residual or dy
  Tensor dweight;     // [hidden] fp32, accumulated
};

void rmsnorm_forward(const OpContext& context, const RmsNormForward& args);
void rmsnorm_backward(const OpContext& context, const RmsNormBackward& args);

}  // namespace trainctl
