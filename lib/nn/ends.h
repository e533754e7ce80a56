// The first and the last layer of a model: the embedding and the head.
#pragma once

#include "nn/layer.h"
#include "nn/reshard.h"
#include "ops/cross_entropy.h"
#include "plan/tables/model.h"

namespace trainctl {

// Token embedding, plus learned positions if the model has them, then dropout. If tensor-parallel
// ranks split the table, their partial rows are summed. With a whole table, each rank looks up the
// rows of its share of the tokens, or of all tokens.

struct Embedding {
  Weight token;     // [rows, hidden]: the vocabulary, or this rank's part of it
  Weight position;  // [positions, hidden]; empty with RoPE
  std::int64_t first_row = 0;
  SplitBy split = SplitBy::whole;
  Reshard leave;  // reshards the table's output to the residual stream
  float dropout = 0;
  float factor = 1;  // multiplies each token's row

  /// Overwrites y [S, hidden], the rows of the residual stream on this rank, and all_y [T, hidden],
  /// the rows of the T looked-up tokens. If T is S, all_y is y; if T is less, all_y is this rank's
  /// rows of y.
  void forward(const Pass& pass, const Tensor& y, const Tensor& all_y) const;
  /// Adds to the gradients of the tables. Masks and scales dy [S, hidden] in place. all_dy [T,
  /// hidden] relates to dy as all_y to y.
  void backward(const Pass& pass, const Tensor& dy, const Tensor& all_dy) const;
};

Embedding make_embedding(const WeightSource& weights, const ModelShape& model,
                         const TensorParallel& tp, SplitBy split);

// The last linear layer and the cross-entropy as one fused operation. Logits exist for one chunk of
// tokens at a time. If ranks split the vocabulary, each has logits for its part only, and they
// exchange maxima and sums (no other layer except Reshard has a Group). In training, the forward
// pass also computes the gradients, because a chunk's logits exist only then; the backward pass
// returns dx. A deferred weight gradient recomputes the logits from the kept input and statistics.
// Loss weights and scale are known in advance.

struct VocabHead {
  Weight weight;  // [rows, hidden]: vocabulary or this rank's part; tied: the embedding's
  std::int64_t first_row = 0;
  std::int64_t vocab = 0;  // real tokens among the rows of all ranks
  Group* group = nullptr;  // the ranks that share the vocabulary
  SplitBy split = SplitBy::whole;
  bool owns_loss = true;  // true on exactly one of the ranks that compute an equal loss
  LogitForm form;
  Reshard enter;

  /// Sizes: S rows in this rank's part of the residual stream, T tokens that the head reads. If T
  /// is S, all_x is x and partial_dx is dx. If T is less, these are this rank's rows of x and dx.
  struct Saved {
    Tensor x;           // [S, hidden]
    Tensor all_x;       // [T, hidden] temporary
    Tensor partial_dx;  // [T, hidden] temporary
    Tensor dx;          // [S, hidden], overwritten in training
    Tensor logits;      // [chunk, rows], temporary
    Tensor stats;       // [3, chunk] fp32, temporary: row maximum, row sum, target
    Tensor all_stats;   // [ranks, 3, chunk] fp32, temporary; with one rank, the memory of stats
    Tensor kept_stats;  // [3 T] fp32: statistics of all chunks, for backward_weight; may be empty
  };

  /// Adds to pass.state->loss_sum. In training also writes dx, and adds the weight gradient unless
  /// kept_stats is given, which defers it to backward_weight.
  void forward(const Pass& pass, const Saved& saved) const;
  /// Adds a deferred weight gradient: recomputes the logits from x.
  void backward_weight(const Pass& pass, const Saved& saved) const;
  /// One chunk: tokens [begin, end) of a micro-batch.
  struct Chunk;
  Chunk chunk_of(const Pass& pass, const Saved& saved, std::int64_t begin) const;
  /// Replaces the logits of a chunk by their gradient.
  void gradient(const Pass& pass, const Chunk& chunk, bool counts_loss) const;
  /// Writes logits [tokens, rows] of x [tokens, hidden] for generation, without cap and scale.
  void logits(const Pass& pass, const Tensor& x, const Tensor& logits) const;
};

/// The scale and the cap that the model applies to its logits.
LogitForm logit_form(const ModelShape& model);

VocabHead make_vocab_head(const WeightSource& weights, const ModelShape& model,
                          const TensorParallel& tp, SplitBy split, Group& alone);

}  // namespace trainctl
