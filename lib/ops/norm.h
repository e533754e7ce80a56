// LayerNorm (Ba et al. 2016, eq. 4) and RMSNorm (Zhang and Sennrich 2019, eq. 4), after an optional
// residual addition; sum = x_factor * x + residual, or x:
//   layer_norm: y = (sum - mean) * rstd * weight + bias,  rstd = 1/sqrt(var + eps)
//   rms_norm:   y = sum * rstd * weight,                  rstd = 1/sqrt(mean(sum^2) + eps)
// With zero_centered, 1 + weight replaces weight. RMSNorm without a weight uses 1.
#pragma once

#include <string_view>

#include "base/kinds.h"
#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct NormForward {
  NormKind kind = NormKind::layer_norm;
  Tensor x;         // [rows, hidden] fp32, bf16 or fp16: this rank's part of the rows
  Tensor residual;  // optional, as x
  Tensor sum;       // as x; written only if residual is given
  Tensor weight;    // [hidden] fp32; may be empty for rms_norm
  Tensor bias{};    // [hidden] fp32; only for layer_norm
  Tensor y;         // as x, overwritten
  Tensor mean{};    // [rows] fp32, overwritten; only for layer_norm
  Tensor rstd;      // [rows] fp32, overwritten; only for layer_norm
  float epsilon = 1e-5F;
  float x_factor = 1;  // only with residual
  bool zero_centered = false;
  // For rms_norm if ranks hold parts of each row: [rows] fp32, the sum of norm_sums over the ranks,
  // and the number of features of a whole row. `sums` is empty if x has whole rows.
  Tensor sums{};
  std::int64_t features = 0;
};

struct NormBackward {
  NormKind kind = NormKind::layer_norm;
  Tensor dy;      // [rows, hidden]
  Tensor x;       // the normalised input (`sum`, with a residual)
  Tensor weight;  // as in the forward; empty only with dweight
  Tensor mean{};  // only for layer_norm
  Tensor rstd;
  Tensor d_residual;  // optional, as x: added to dx, the residual branch's gradient of `sum`
  Tensor dx;          // as x, overwritten; may share memory with d_residual or dy
  Tensor dweight;     // [hidden] fp32, accumulated; only for layer_norm
  Tensor dbias{};     // [hidden] fp32, accumulated; only for layer_norm
  bool zero_centered = false;
  Tensor sums{};  // as in the forward, but from norm_sums with dy
  std::int64_t features = 0;
};

/// Partial sums for an rms_norm whose rows are divided among ranks, which then add them up: for
/// each row the sum of x^2, or with dy the sum of dy weight x.
struct NormSums {
  Tensor x;         // [rows, hidden] fp32, bf16 or fp16: this rank's part of the rows
  Tensor dy{};      // as x; may be empty
  Tensor weight{};  // [hidden] fp32, used with dy
  Tensor sums;      // [rows] fp32, overwritten; only for layer_norm
  bool zero_centered = false;
};

/// The number added to the stored weight.
constexpr float weight_offset(bool zero_centered) { return zero_centered ? 1.0F : 0.0F; }

void norm_forward(const OpContext& context, const NormForward& args);
void norm_backward(const OpContext& context, const NormBackward& args);
void norm_sums(const OpContext& context, const NormSums& args);

/// The name of a kind in benchmarks, such as "layernorm_forward" or "rmsnorm_backward".
constexpr std::string_view name_of_forward(NormKind kind) {
  return kind == NormKind::layer_norm ? "layernorm_forward" : "rmsnorm_forward";
}
constexpr std::string_view name_of_backward(NormKind kind) {
  return kind == NormKind::layer_norm ? "layernorm_backward" : "rmsnorm_backward";
}

}  // namespace trainctl
