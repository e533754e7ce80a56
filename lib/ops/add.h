// y = a + b, element by element.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct Add {
  Tensor a;  // any shape, fp32, bf16 or fp16
  Tensor b;
  Tensor y;  // overwritten; may be the same memory as a or b
};

void add(const OpContext& context, const Add& args);

}  // namespace trainctl
