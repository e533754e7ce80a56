// *result += sum of x^2, in double, over fixed blocks of 4096 elements in order, whatever the
// thread count.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct SquareSum {
  Tensor x;                  // [n] fp32 or bf16
  double* result = nullptr;  // device memory
};

void square_sum(const OpContext& context, const SquareSum& args);

}  // namespace trainctl
