#include "plan/estimate.h"

namespace trainctl {

FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double hidden = real(model.hidden);
  const double q = real(model.q_features());
  const double kv = real(model.kv_features());
  const double layers = real(model.layers);
  const double seq = real(model.seq_length);
  const double mlp_matrices = model.family == Family::llama ? 3 : 2;
  // Weights that a token is multiplied with in one layer: q, k, v, out and the MLP.
  const double weights = hidden * (2 * q + 2 * kv) + mlp_matrices * hidden * real(model.ffn);
  const double head = hidden * real(model.padded_vocab);

  // A multiply and an add per weight forward; the input's and the weight's gradient cost the same.
  constexpr double forward_and_backward = 3;
  FlopsEstimate flops;
  flops.matmul = forward_and_backward * 2 * (layers * weights + head) * real(tokens);
  // Each query-key pair costs a product with k and one with v: 4 q in all.
  const double per_pair = forward_and_backward * 4 * q * layers * real(tokens);
  flops.attention_full = per_pair * seq;
  flops.attention_causal = per_pair * (seq + 1) / 2;
  return flops;
}

std::vector<CollectiveUse> estimate_communication(const Plan& plan) {
  if (plan.mesh.dp == 1) return {};
  CollectiveUse gradients;
  gradients.name = "all_reduce gradients";
  gradients.axis = Axis::dp;
  gradients.count = static_cast<std::int64_t>(plan.flat.buckets.size());
  gradients.bytes = plan.flat.length * size_of(DType::f32);
  return {gradients};
}

}  // namespace trainctl
