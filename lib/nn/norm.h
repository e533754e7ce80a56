// LayerNorm and RMSNorm as one layer.
#pragma once

#include "nn/exchange/pass.h"
#include "nn/weight.h"
#include "plan/tables/model.h"

namespace trainctl {

struct Norm {
  Weight weight;  // [hidden] fp32
  Weight bias;    // [hidden] fp32, or empty: RMSNorm
  float epsilon = 1e-5F;
  float branch_factor = 1;     // of what is added to the residual before
  bool zero_centered = false;  // 1 + weight

  struct Saved {
    Tensor x;           // [rows, hidden] the input of the norm; written if there is a residual
    Tensor y;           // [rows, hidden]
    Tensor mean, rstd;  // [rows] fp32; mean is empty for RMSNorm
  };

  bool empty() const { return weight.empty(); }
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

}  // namespace trainctl
