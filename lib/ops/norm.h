// LayerNorm (Ba et al. 2016, eq. 4) and RMSNorm (Zhang and Sennrich 2019, eq. 4) with the residual
// addition before them; sum = x_factor * x + residual (if given):
//   layer_norm: y = (sum - mean) * rstd * weight + bias,  rstd = 1/sqrt(var + eps)
//   rms_norm:   y = sum * rstd * weight,                  rstd = 1/sqrt(mean(sum^2) + eps)
// where zero_centered puts 1 + weight for weight. RMSNorm may have no weight: 1 in its place.
#pragma once

#include <string_view>

#include "base/kinds.h"
#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct NormForward {
  NormKind kind = NormKind::layer_norm;
  Tensor x;         // [rows, hidden] fp32, bf16 or fp16
  Tensor residual;  // optional, as x
  Tensor sum;       // as x; written only if residual is given
  Tensor weight;    // [hidden] fp32; rms_norm: or empty
  Tensor bias{};    // [hidden] fp32; of layer_norm, as mean
  Tensor y;         // as x, overwritten
  Tensor mean{};    // [rows] fp32, overwritten
  Tensor rstd;      // [rows] fp32, overwritten
  float epsilon = 1e-5F;
  float x_factor = 1;  // only with a residual
  bool zero_centered = false;
  // For rms_norm where ranks hold parts of each row: [rows] fp32, the sum of norm_sums over the
  // ranks, and the number of features of a whole row. Empty: x has whole rows.
  Tensor sums{};
  std::int64_t features = 0;
};

struct NormBackward {
  NormKind kind = NormKind::layer_norm;
  Tensor dy;      // [rows, hidden]
  Tensor x;       // the normalised input (sum, where there was a residual)
  Tensor weight;  // as in the forward; empty with dweight
  Tensor mean{};  // of layer_norm, as dbias
  Tensor rstd;
  Tensor d_residual;  // optional, as x: added to dx, since it reaches `sum` by its other use
  Tensor dx;          // as x, overwritten; may be the same memory as d_residual or dy
  Tensor dweight;     // [hidden] fp32, accumulated
  Tensor dbias{};     // [hidden] fp32, accumulated
  bool zero_centered = false;
  Tensor sums{};  // as in the forward: of norm_sums with dy
  std::int64_t features = 0;
};

/// Sums that ranks with parts of the rows of an rms_norm add up before it: for each row the sum of
/// x^2, or with dy the sum of dy weight x.
struct NormSums {
  Tensor x;         // [rows, hidden] fp32, bf16 or fp16
  Tensor dy{};      // as x
  Tensor weight{};  // [hidden] fp32, with dy
  Tensor sums;      // [rows] fp32, overwritten
  bool zero_centered = false;
};

/// The number that is added to the stored weight.
constexpr float weight_offset(bool zero_centered) { return zero_centered ? 1.0F : 0.0F; }

void norm_forward(const OpContext& context, const NormForward& args);
void norm_backward(const OpContext& context, const NormBackward& args);
void norm_sums(const OpContext& context, const NormSums& args);

/// "layernorm_forward", "rmsnorm_backward": what benchmarks call them.
constexpr std::string_view name_of_forward(NormKind kind) {
  return kind == NormKind::layer_norm ? "layernorm_forward" : "rmsnorm_forward";
}
constexpr std::string_view name_of_backward(NormKind kind) {
  return kind == NormKind::layer_norm ? "layernorm_backward" : "rmsnorm_backward";
}

}  // namespace trainctl
