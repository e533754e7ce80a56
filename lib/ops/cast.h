// y = x in another float type, rounded to nearest even.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct Cast {
  Tensor x;  // fp32, bf16 or fp16
  Tensor y;  // fp32, bf16 or fp16, same numel, overwritten
};

void cast(const OpContext& context, const Cast& args);

}  // namespace trainctl
