// The normalisation of a family: LayerNorm with a bias, RMSNorm without.
#pragma once

#include "nn/pass.h"
#include "nn/weight.h"

namespace trainctl {

struct Norm {
  Weight weight;  // [hidden] fp32
  Weight bias;    // [hidden] fp32, or empty: RMSNorm
  float epsilon = 1e-5F;

  struct Saved {
    Tensor x;           // [rows, hidden] the input of the norm; written if there is a residual
    Tensor y;           // [rows, hidden]
    Tensor mean, rstd;  // [rows] fp32; mean is empty for RMSNorm
  };

  bool empty() const { return weight.empty(); }
  /// y = norm(x).
  void forward(const Pass& pass, const Saved& saved) const;
  /// saved.x = branch + residual; y = norm(saved.x).
  void forward(const Pass& pass, const Saved& saved, const Tensor& branch,
               const Tensor& residual) const;
  /// dx = gradient through the norm (+ d_residual, if given); adds the gradients of the weights.
  void backward(const Pass& pass, const Saved& saved, const Tensor& dy, const Tensor& d_residual,
                const Tensor& dx) const;
};

Norm make_norm(const WeightSource& weights, const std::string& name, bool with_bias,
               double epsilon);

}  // namespace trainctl
