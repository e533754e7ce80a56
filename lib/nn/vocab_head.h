// The last linear layer and the cross-entropy as one fused op: logits exist for one chunk of tokens
// at a time. In training the forward pass also computes the gradients, since each chunk's logits
// are at hand only then; its backward_input has nothing left to do but pass d_x on. The loss
// weights and scale are known before the forward.
#pragma once

#include "nn/pass.h"
#include "nn/weight.h"
#include "plan/model.h"

namespace trainctl {

struct VocabHead {
  Weight weight;           // [padded_vocab, hidden]: the embedding's when tied
  std::int64_t vocab = 0;  // real tokens

  struct Saved {
    Tensor x;                         // [T, hidden]
    Tensor d_x;                       // [T, hidden], overwritten in training
    Tensor logits;                    // [chunk, padded_vocab], temporary
    Tensor row_max, row_sum, target;  // [chunk] fp32, temporary
  };

  /// Adds to pass.state->loss_sum; in training writes d_x and adds the weight gradient.
  void forward(const Pass& pass, const Saved& saved) const;
  /// logits [rows, padded_vocab] of x [rows, hidden], for generation.
  void logits(const Pass& pass, const Tensor& x, const Tensor& logits) const;
};

VocabHead make_vocab_head(const WeightSource& weights, const ModelShape& model);

}  // namespace trainctl
