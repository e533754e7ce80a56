// Operations on whole rows: rows for experts, embeddings, bias gradients, copies of rows and
// blocks.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

// Rows sent to experts and back. x and y are fp32, bf16 or fp16, with F elements per row; sums are
// computed in fp32.

// spread:  y[slot[t, j]] = x[t], except for slots of -1
// collect: y[t] = sum over j of x[slot[t, j]], except for slots of -1. The gradient of spread is
//          collect, and the reverse.
// scale:   y[r] = weight[r] x[r]; backward: dx[r] = weight[r] dy[r], d_weight[r] = dy[r] . x[r]
//          with sigmoid: s = sigmoid(weight[r]) instead of the weight, and d_weight[r] =
//          s (1 - s) dy[r] . x[r]
// bias:    y[r] += weight[r] bias; backward: d_bias += sum over r of weight[r] dy[r],
//          d_weight[r] += dy[r] . bias

struct MoveRows {
  Tensor x;     // spread: [T, F], collect: [N, F]
  Tensor slot;  // [T, k] i32: rows of the tensor with N, or -1; spread: each at most once
  Tensor y;     // spread: [N, F]; rows that no slot names are not written; collect: [T, F],
                // overwritten
};

/// The forward pass takes y, the backward pass the gradients.
struct ScaleRows {
  Tensor x;           // [R, F]
  Tensor weight;      // [R] fp32
  Tensor y{};         // [R, F], overwritten; may be x
  Tensor dy{};        // [R, F]
  Tensor dx{};        // [R, F], overwritten; may be dy
  Tensor d_weight{};  // [R] fp32, overwritten
  bool sigmoid = false;
};

/// As ScaleRows.
struct BiasRows {
  Tensor y{};         // [R, F], accumulated
  Tensor dy{};        // [R, F]
  Tensor weight;      // [R] fp32
  Tensor bias;        // [F] fp32
  Tensor d_bias{};    // [F] fp32, accumulated
  Tensor d_weight{};  // [R] fp32, accumulated; empty if another rank adds the bias
};

void spread_rows(const OpContext& context, const MoveRows& args);
void collect_rows(const OpContext& context, const MoveRows& args);
void scale_rows(const OpContext& context, const ScaleRows& args);
void scale_rows_backward(const OpContext& context, const ScaleRows& args);
void bias_rows(const OpContext& context, const BiasRows& args);
void bias_rows_backward(const OpContext& context, const BiasRows& args);

// y[t] = table[indices[t]], or added to y[t]: rows for tokens or positions. Indices outside
// [first_row, first_row + rows), which belong to another rank's shard, give zeros.

/// The forward pass takes table and y, the backward pass their gradients.
struct EmbeddingArgs {
  Tensor indices;  // [tokens] i32
  Tensor table{};  // [rows, hidden] fp32, bf16 or fp16
  std::int64_t first_row = 0;
  Tensor y{};  // [tokens, hidden], as table
  bool accumulate = false;
  Tensor dy{};      // [tokens, hidden] fp32, bf16 or fp16
  Tensor dtable{};  // [rows, hidden] fp32, accumulated in token order
};

void embedding_forward(const OpContext& context, const EmbeddingArgs& args);
void embedding_backward(const OpContext& context, const EmbeddingArgs& args);

// db += column sums of dy.

struct BiasGradient {
  Tensor dy;  // [rows, features] fp32, bf16 or fp16
  Tensor db;  // [features] fp32, accumulated
};

void bias_gradient(const OpContext& context, const BiasGradient& args);

// Copies rows between memory with different distances of rows: y[r][i] = x[r][i].

struct CopyRows {
  Tensor x;  // starts at the first row; elements between rows are not read
  Tensor y;  // likewise, of x's type, in other memory; elements between rows are not written
  std::int64_t rows = 0;
  std::int64_t length = 0;              // elements per row
  std::int64_t x_step = 0, y_step = 0;  // elements from the start of a row to the start of the next
};

/// Elements from the start of the first row to the end of the last row.
constexpr std::int64_t reach_of(std::int64_t rows, std::int64_t length, std::int64_t step) {
  return rows == 0 ? 0 : (rows - 1) * step + length;
}

void copy_rows(const OpContext& context, const CopyRows& args);

// Transposes a matrix of blocks: y[j][i] = x[i][j]. Orders the columns of a tensor by the rank that
// receives them, or restores their order.

struct SwapBlocks {
  Tensor x;  // [rows][columns][width], of any shape and type
  Tensor y;  // [columns][rows][width], of x's type, in other memory
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

void swap_blocks(const OpContext& context, const SwapBlocks& args);

}  // namespace trainctl
