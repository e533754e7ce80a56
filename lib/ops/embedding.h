// y[t] = table[indices[t]], or added to y: the rows of tokens and of positions alike. Indices
// outside [first_row, first_row + rows) give zeros (they belong to another rank's shard of the
// table).
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct EmbeddingForward {
  Tensor indices;  // [tokens] i32
  Tensor table;    // [rows, hidden] fp32, bf16 or fp16
  std::int64_t first_row = 0;
  Tensor y;  // [tokens, hidden], as table
  bool accumulate = false;
};

struct EmbeddingBackward {
  Tensor indices;
  std::int64_t first_row = 0;
  Tensor dy;      // [tokens, hidden] fp32, bf16 or fp16
  Tensor dtable;  // [rows, hidden] fp32, accumulated in token order
};

void embedding_forward(const OpContext& context, const EmbeddingForward& args);
void embedding_backward(const OpContext& context, const EmbeddingBackward& args);

}  // namespace trainctl
