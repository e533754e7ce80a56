// y[t] = table[tokens[t]] (+ position_table[position[t]]); tokens outside [first_row, first_row +
// rows) give zeros (they belong to another rank's shard of the vocabulary).
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct EmbeddingForward {
  Tensor tokens;  // [tokens] i32
  Tensor table;   // [rows, hidden] fp32 or bf16
  std::int64_t first_row = 0;
  Tensor position{};        // optional [tokens] i32
  Tensor position_table{};  // optional [positions, hidden], as table
  Tensor y;                 // [tokens, hidden], as table, overwritten
};

struct EmbeddingBackward {
  Tensor tokens;
  std::int64_t first_row = 0;
  Tensor position{};         // optional
  Tensor dy;                 // [tokens, hidden] fp32 or bf16
  Tensor dtable;             // [rows, hidden] fp32, accumulated in token order
  Tensor dposition_table{};  // optional [positions, hidden] fp32, accumulated in token order
};

void embedding_forward(const OpContext& context, const EmbeddingForward& args);
void embedding_backward(const OpContext& context, const EmbeddingBackward& args);

}  // namespace trainctl
