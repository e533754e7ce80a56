// LayerNorm and RMSNorm as one layer.
#pragma once

#include "nn/layer.h"
#include "plan/tables/model.h"

namespace trainctl {

struct Norm {
  Weight weight;  // [hidden] fp32; empty in RMSNorm without weights
  Weight bias;    // [hidden] fp32; empty in RMSNorm
  float epsilon = 1e-5F;
  float branch_factor = 1;     // multiplies the branch before the residual is added
  bool zero_centered = false;  // multiplies by 1 + weight instead of weight
  bool weighted = true;
  std::int64_t features = 0;  // features of a whole row, if ranks divide rows

  struct Saved {
    Tensor x;           // [rows, hidden] the input of the norm; written if there is a residual
    Tensor y;           // [rows, hidden]
    Tensor mean, rstd;  // [rows] fp32; mean is empty for RMSNorm
    Tensor sums{};      // [rows] fp32 if ranks divide rows: result of add_up, summed over ranks
  };

  bool empty() const { return weighted && weight.empty(); }
  /// Writes this rank's part of the sums that forward needs, or with dy backward, to saved.sums.
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
