// The first and the last layer of a model: the embedding and the head.
#pragma once

#include "nn/layer.h"
#include "nn/reshard.h"
#include "ops/cross_entropy.h"
#include "plan/tables/model.h"

namespace trainctl {

// Token embedding, plus learned positions where the model has them, plus dropout. A table split
// among tensor-parallel ranks gives partial rows that are summed; with a whole table, each rank
// looks up the rows of its share of the tokens, or of all.

struct Embedding {
  Weight token;     // [rows, hidden]: the vocabulary, or this rank's part of it
  Weight position;  // [positions, hidden]; empty with RoPE
  std::int64_t first_row = 0;
  SplitBy split = SplitBy::whole;
  Reshard leave;  // from the table's output to the residual stream
  float dropout = 0;
  float factor = 1;  // of the token's row

  /// Overwrites y [S, hidden], the S rows of the residual stream, and all_y [T, hidden], of the T
  /// tokens that the look-up is for: if they are those of the stream y, if fewer this rank's rows
  /// of it.
  void forward(const Pass& pass, const Tensor& y, const Tensor& all_y) const;
  /// Adds to the gradients of the tables. dy [S, hidden] is masked and scaled in place; all_dy
  /// [T, hidden] is as all_y.
  void backward(const Pass& pass, const Tensor& dy, const Tensor& all_dy) const;
};

Embedding make_embedding(const WeightSource& weights, const ModelShape& model,
                         const TensorParallel& tp, SplitBy split);

// The last linear layer and the cross-entropy as one fused op. Logits exist for one chunk of tokens
// at a time, and with a split vocabulary only for this rank's part, whose maxima and sums are
// exchanged (the only layer besides Reshard that has a Group). In training, the forward pass also
// computes the gradients, because each chunk's logits exist only then; the backward pass just
// returns dx. A deferred weight gradient makes the logits again from the kept input and statistics.
// Loss weights and scale are known in advance.

struct VocabHead {
  Weight weight;  // [rows, hidden]: the embedding's if tied; the vocabulary or this rank's part
  std::int64_t first_row = 0;
  std::int64_t vocab = 0;  // real tokens among the rows
  Group* group = nullptr;  // the ranks that share the vocabulary
  SplitBy split = SplitBy::whole;
  bool owns_loss = true;  // one of the ranks that compute the same loss
  LogitForm form;
  Reshard enter;

  /// S rows of the residual stream, T tokens that the head takes. If they are the same, all_x is x
  /// and partial_dx is dx; if they are fewer, this rank's rows of these.
  struct Saved {
    Tensor x;           // [S, hidden]
    Tensor all_x;       // [T, hidden] temporary
    Tensor partial_dx;  // [T, hidden] temporary
    Tensor dx;          // [S, hidden], overwritten in training
    Tensor logits;      // [chunk, rows], temporary
    Tensor stats;       // [3, chunk] fp32, temporary: row maximum, row sum, target
    Tensor all_stats;   // [ranks, 3, chunk] fp32, temporary; with one rank, the memory of stats
    Tensor kept_stats;  // [3 T] fp32: of each chunk, for backward_weight; may be empty
  };

  /// Adds to pass.state->loss_sum; in training writes dx and adds the weight gradient, unless
  /// kept_stats is there to make it later.
  void forward(const Pass& pass, const Saved& saved) const;
  /// Adds the weight gradient that forward has left: makes the logits again from x.
  void backward_weight(const Pass& pass, const Saved& saved) const;
  /// Tokens [begin, end) of a micro-batch: one chunk.
  struct Chunk;
  Chunk chunk_of(const Pass& pass, const Saved& saved, std::int64_t begin) const;
  /// Replaces the logits by their gradient.
  void gradient(const Pass& pass, const Chunk& chunk, bool counts_loss) const;
  /// Stored logits (LogitForm) [tokens, rows] of x [tokens, hidden], for generation.
  void logits(const Pass& pass, const Tensor& x, const Tensor& logits) const;
};

/// The form in which the model stores its logits.
LogitForm logit_form(const ModelShape& model);

VocabHead make_vocab_head(const WeightSource& weights, const ModelShape& model,
                          const TensorParallel& tp, SplitBy split, Group& alone);

}  // namespace trainctl
