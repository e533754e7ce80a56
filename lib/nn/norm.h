// LayerNorm and RMSNorm as one layer.
#pragma once

#include "nn/layer.h"
#include "plan/tables/model.h"

namespace trainctl {

struct Norm {
  Weight weight;  // [hidden] fp32, or empty: RMSNorm without weights
  Weight bias;    // [hidden] fp32, or empty: RMSNorm
  float epsilon = 1e-5F;
  float branch_factor = 1;     // of what is added to the residual before
  bool zero_centered = false;  // 1 + weight
  bool weighted = true;
  std::int64_t features = 0;  // of a row of all ranks, where they divide rows

  struct Saved {
    Tensor x;           // [rows, hidden] the input of the norm; written if there is a residual
    Tensor y;           // [rows, hidden]
    Tensor mean, rstd;  // [rows] fp32; mean is empty for RMSNorm
    Tensor sums{};      // [rows] fp32 where ranks divide rows: what add_up left, summed over them
  };

  bool empty() const { return weighted && weight.empty(); }
  /// saved.sums = this rank's part of the sums that the forward needs, or with dy the backward.
  void add_up(const Pass& pass, const Saved& saved, const Tensor& dy) const;
  /// y = norm(x).
  void forward(const Pass& pass, const Saved& saved) const;
  /// saved.x = branch_factor * branch + residual; y = norm(saved.x).
  void forward(const Pass& pass, const Saved& saved, const Tensor& branch,
               const Tensor& residual) const;
  /// dx = gradient through the norm (+ d_residual, if given); adds the gradients of the weights.
  void backward(const Pass& pass, const Saved& saved, const Tensor& dy, const Tensor& d_residual,
                const Tensor& dx) const;
};

/// `name` is "layers.N.norm1".
Norm make_norm(const WeightSource& weights, const std::string& name, NormKind kind,
               const ModelShape& model);
/// RMSNorm without weights.
Norm make_unweighted_norm(const ModelShape& model);

}  // namespace trainctl
