// y = x W^T + b, with the three products of its training step as separate calls. "Column" and "row"
// parallel are only which shard of the weight it was given.
#pragma once

#include "nn/pass.h"
#include "nn/weight.h"

namespace trainctl {

struct Linear {
  Weight weight;  // [out, in]
  Weight bias;    // [out] or empty

  /// x [tokens, in] -> y [tokens, out], overwritten.
  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  /// dy [tokens, out] -> dx [tokens, in], overwritten or accumulated; adds the bias gradient.
  void backward_input(const Pass& pass, const Tensor& dy, const Tensor& dx,
                      bool accumulate = false) const;
  /// Adds dy^T x to the weight gradient.
  void backward_weight(const Pass& pass, const Tensor& dy, const Tensor& x) const;
};

/// The layer `name`.weight and, if `with_bias`, `name`.bias.
Linear make_linear(const WeightSource& weights, const std::string& name, bool with_bias);

}  // namespace trainctl
