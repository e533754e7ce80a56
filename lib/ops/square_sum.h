// *result += sum of x^2, in double, over fixed blocks of elements in order (of 4096 on the CPU),
// whatever the thread count. Calls with one result add to it in their order.
#pragma once

#include "device/tensor.h"
#include "ops/calls.h"

namespace trainctl {

struct SquareSum {
  Tensor x;                  // [n] fp32 or bf16
  double* result = nullptr;  // device memory
};

constexpr std::int64_t elements_of(const SquareSum& args) { return args.x.shape.numel(); }

void square_sum(const OpContext& context, const Calls<SquareSum>& calls);

}  // namespace trainctl
