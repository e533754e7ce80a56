// Operations on whole rows: rows of experts, embeddings, gradients of biases, copies of rows and
// blocks.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

// Rows on their way to experts and back. x, y: fp32, bf16 or fp16; F elements of a row; sums are
// taken in fp32.

// spread:  y[slot[t, j]] = x[t]; a slot of -1 takes nothing
// collect: y[t] = sum over j of x[slot[t, j]]; a slot of -1 adds nothing. It is the gradient of
//          spread, and spread that of collect.
// scale:   y[r] = weight[r] x[r]; backward: dx[r] = weight[r] dy[r], d_weight[r] = dy[r] . x[r]
//          with sigmoid: s = sigmoid(weight[r]) instead of the weight, and d_weight[r] =
//          s (1 - s) dy[r] . x[r]
// bias:    y[r] += weight[r] bias; backward: d_bias += sum over r of weight[r] dy[r],
//          d_weight[r] += dy[r] . bias

struct MoveRows {
  Tensor x;     // spread: [T, F], collect: [N, F]
  Tensor slot;  // [T, k] i32: rows of the tensor with N, or -1; spread: each at most once
  Tensor y;     // spread: [N, F], whose rows that no slot names are not written; collect: [T, F],
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
  Tensor y{};         // [R, F], added to
  Tensor dy{};        // [R, F]
  Tensor weight;      // [R] fp32
  Tensor bias;        // [F] fp32
  Tensor d_bias{};    // [F] fp32, added to
  Tensor d_weight{};  // [R] fp32, added to; empty: another rank adds the bias
};

void spread_rows(const OpContext& context, const MoveRows& args);
void collect_rows(const OpContext& context, const MoveRows& args);
void scale_rows(const OpContext& context, const ScaleRows& args);
void scale_rows_backward(const OpContext& context, const ScaleRows& args);
void bias_rows(const OpContext& context, const BiasRows& args);
void bias_rows_backward(const OpContext& context, const BiasRows& args);

// y[t] = table[indices[t]], or added to y: the rows of tokens and of positions alike. Indices
// outside [first_row, first_row + rows) give zeros (they belong to another rank's shard of the
// table).

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

// db += sum of dy over rows.

struct BiasGradient {
  Tensor dy;  // [rows, features] fp32, bf16 or fp16
  Tensor db;  // [features] fp32, accumulated
};

void bias_gradient(const OpContext& context, const BiasGradient& args);

// Rows of one stretch of memory to another, where they lie at other distances: y[r][i] = x[r][i].

struct CopyRows {
  Tensor x;  // begins at the first row; elements between rows are not read
  Tensor y;  // the same, of the type of x; other memory. Elements between rows are not written
  std::int64_t rows = 0;
  std::int64_t length = 0;              // elements of a row
  std::int64_t x_step = 0, y_step = 0;  // elements from the begin of a row to that of the next
};

/// Elements from the first of the first row to the last of the last one.
constexpr std::int64_t reach_of(std::int64_t rows, std::int64_t length, std::int64_t step) {
  return rows == 0 ? 0 : (rows - 1) * step + length;
}

void copy_rows(const OpContext& context, const CopyRows& args);

// Blocks of a matrix of blocks in the other order: y[j][i] = x[i][j]. Packs the columns of a tensor
// by the rank that gets them, and back.

struct SwapBlocks {
  Tensor x;  // [rows][columns][width] in that order, of any shape and type
  Tensor y;  // [columns][rows][width], of the same type; other memory
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

void swap_blocks(const OpContext& context, const SwapBlocks& args);

}  // namespace trainctl
