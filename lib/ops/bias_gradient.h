// db += sum of dy over rows.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct BiasGradient {
  Tensor dy;  // [rows, features] fp32, bf16 or fp16
  Tensor db;  // [features] fp32, accumulated
};

void bias_gradient(const OpContext& context, const BiasGradient& args);

}  // namespace trainctl
