// x[i] = deviation * normal(Philox(seed, stream), first + i): initial weights that no layout can
// change.
#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct NormalFill {
  Tensor x;  // [n] fp32, or bf16 to which values are rounded; overwritten
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // the tensor's identity
  std::int64_t first = 0;    // global index of x[0]
  float deviation = 1;
};

void normal_fill(const OpContext& context, const NormalFill& args);

}  // namespace trainctl
