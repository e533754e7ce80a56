// y = a + factor b, element by element, or y = factor b. The sum is taken in fp32 and rounded to
// nearest even.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct Add {
  Tensor a;  // any shape, fp32, bf16 or fp16; absent: 0, in the type of y
  Tensor b;  // the same shape, in the type of a or in fp32
  Tensor y;  // as a, overwritten; may be the same memory as a or b
  float factor = 1;
};

void add(const OpContext& context, const Add& args);

}  // namespace trainctl
