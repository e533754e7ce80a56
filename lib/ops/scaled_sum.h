// z = alpha x + beta y, element by element, in fp32, rounded to nearest even. With `squares`, alpha
// is divided by max(sqrt(*squares), least): a tensor is brought to a norm of 1; where both are 0, z
// has no part of x.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct ScaledSum {
  Tensor x;    // any shape, fp32 or bf16
  Tensor y{};  // optional, of the same shape, fp32 or bf16
  Tensor z;    // overwritten, of the same shape, fp32 or bf16; may be the same memory as x or y
  float alpha = 1;
  float beta = 1;
  const double* squares = nullptr;  // device memory
  float least = 0;
};

/// alpha as it multiplies x.
constexpr float divided(float alpha, double root, float least) {
  const double divisor = root > static_cast<double>(least) ? root : static_cast<double>(least);
  return divisor > 0 ? static_cast<float>(static_cast<double>(alpha) / divisor) : 0.0F;
}

void scaled_sum(const OpContext& context, const ScaledSum& args);

}  // namespace trainctl
