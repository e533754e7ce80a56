// Products that do not depend on one another, such as those of q, k and v, which have the same
// input. A device does as one launch those that follow one another with the same extents and lie
// equally far apart; the others, and every other backend, do one after the other. The results are
// those of matmul and matmul_column_sums.
#pragma once

#include <span>

#include "device/tensor.h"
#include "ops/context.h"
#include "ops/matmul.h"

namespace trainctl {

struct MatmulBatch {
  struct One {
    Matmul product;
    Tensor sums{};  // empty, or as MatmulColumnSums::sums
  };
  std::span<const One> list;  // no result is another's operand or result
};

/// Throws as matmul and matmul_column_sums do.
void matmul_batch(const OpContext& context, const MatmulBatch& args);

}  // namespace trainctl
