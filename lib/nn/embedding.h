// Token embedding plus, in GPT-2, position embedding; then dropout.
#pragma once

#include "nn/pass.h"
#include "nn/weight.h"
#include "plan/model.h"

namespace trainctl {

struct Embedding {
  Weight token;     // [padded_vocab, hidden]
  Weight position;  // [positions, hidden] or empty
  float dropout = 0;

  /// y [tokens, hidden], overwritten.
  void forward(const Pass& pass, const Tensor& y) const;
  /// Adds the tables' gradients; dy is used up.
  void backward(const Pass& pass, const Tensor& dy) const;
};

Embedding make_embedding(const WeightSource& weights, const ModelShape& model);

}  // namespace trainctl
