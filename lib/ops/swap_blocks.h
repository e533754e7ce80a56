// Blocks of a matrix of blocks in the other order: y[j][i] = x[i][j]. Packs the columns of a tensor
// by the rank that gets them, and back.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct SwapBlocks {
  Tensor x;  // [rows][columns][width] in that order, of any shape and type
  Tensor y;  // [columns][rows][width], of the same type; other memory
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

void swap_blocks(const OpContext& context, const SwapBlocks& args);

}  // namespace trainctl
