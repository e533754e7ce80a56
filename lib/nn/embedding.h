// Token embedding, plus learned positions where the model has them, plus dropout. A table split
// among tensor-parallel ranks gives partial rows that are summed; with a whole table, each rank
// looks up the rows of its share of the tokens, or of all.
#pragma once

#include "nn/exchange/reshard.h"
#include "nn/weight.h"
#include "plan/tables/model.h"

namespace trainctl {

struct Embedding {
  Weight token;     // [rows, hidden]: the vocabulary, or this rank's part of it
  Weight position;  // [positions, hidden]; empty with RoPE
  std::int64_t first_row = 0;
  SplitBy split = SplitBy::whole;
  Reshard leave;  // from the table's output to the residual stream
  float dropout = 0;
  float factor = 1;  // of the token's row

  /// S rows of the residual stream, T tokens.
  struct Saved {
    Tensor all_y;  // [T, hidden] temporary, of the tokens that the look-up is for; if they are
                   // those of the stream y, if fewer this rank's rows of it
    Tensor y;      // [S, hidden]
  };

  /// Overwrites y.
  void forward(const Pass& pass, const Saved& saved) const;
  /// Adds to the gradients of the tables. dy [S, hidden] is masked and scaled in place; all_dy
  /// [T, hidden] is as all_y.
  void backward(const Pass& pass, const Tensor& dy, const Tensor& all_dy) const;
};

Embedding make_embedding(const WeightSource& weights, const ModelShape& model,
                         const TensorParallel& tp, SplitBy split);

}  // namespace trainctl
