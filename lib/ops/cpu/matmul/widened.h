// The product of bf16 or fp16 matrices through fp32: blocks of the operands are converted in
// scratch, multiplied by the library and summed there, and rounded once. For levels without tiles
// of our own and for shapes that those leave, since not every oneDNN multiplies fp16, and none
// multiplies bf16 below AVX-512. Internal to lib/ops.
#pragma once

#include "ops/matmul.h"

namespace trainctl {

/// a and b are bf16 or fp16; m, n and k must be positive.
void matmul_widened(const OpContext& context, const Matmul& args);

}  // namespace trainctl
