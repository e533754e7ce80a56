#include "plan/cost/estimate.h"
#include "plan/model/expert_rows.h"

namespace trainctl {

FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens,
                             const std::vector<UnitRange>& units) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double hidden = real(model.hidden);
  const double q = real(model.q_features());
  const double kv = real(model.kv_features());
  const double layers = real(count_blocks(units, model.layers));
  const double routed = real(count_expert_blocks(model, units));
  const double seq = real(model.seq_length);
  const double mlp_matrices = model.gated_mlp ? 3 : 2;
  // Weights that a token is multiplied with: in each layer q, k, v, out and the MLP, or the router
  // the token's experts and the shared ones.
  const double attention = hidden * (2 * q + 2 * kv);
  const double mlp = mlp_matrices * hidden * real(model.ffn);
  const double gate = model.shared_gate ? hidden : 0;
  const double widths = real(model.topk) * real(model.expert_ffn) + real(model.shared_ffn);
  const double experts = real(model.experts) * hidden + gate + mlp_matrices * hidden * widths;
  const double weights = layers * attention + (layers - routed) * mlp + routed * experts;
  const bool scores = holds(units, head_unit(model.layers));
  const double head = scores ? hidden * real(model.padded_vocab) : 0;

  // A multiply and an add per weight forward; the input's and the weight's gradient cost the same.
  constexpr double forward_and_backward = 3;
  FlopsEstimate flops;
  flops.matmul = forward_and_backward * 2 * (weights + head) * real(tokens);
  // Each query-key pair costs a product with k and one with v: 4 q in all.
  const double per_pair = forward_and_backward * 4 * q * layers * real(tokens);
  flops.attention_full = per_pair * seq;
  flops.attention_causal = per_pair * (seq + 1) / 2;
  return flops;
}

FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens) {
  return estimate_flops(model, tokens, {all_units(model.layers)});
}

FlopsEstimate rank_flops(const Plan& plan, std::int64_t tokens, int unit) {
  const ModelShape& model = plan.model;
  const auto tp = static_cast<double>(plan.mesh.tp);
  const double ranks = static_cast<double>(plan.mesh.tp * plan.mesh.cp);
  const FlopsEstimate all = estimate_flops(model, tokens, {{unit, unit + 1}});
  const auto attention = static_cast<double>(6 * tokens) * static_cast<double>(model.hidden) *
                         static_cast<double>(2 * (model.q_features() + model.kv_features()));
  const auto router = static_cast<double>(6 * tokens) * static_cast<double>(model.hidden) *
                      static_cast<double>(model.experts + (model.shared_gate ? 1 : 0));
  double whole = 0;  // of the products that every tensor-parallel rank makes
  double attended = all.attention_causal / ranks;
  if (unit == head_unit(model.layers)) {
    if (plan.splits.head == SplitBy::whole) whole = all.matmul;
  } else if (unit > 0) {
    const BlockSplit split = plan.splits.of_unit(unit);
    const bool experts = model.has_experts(unit - 1);
    if (split.attention == SplitBy::whole) {
      whole += attention;
      attended *= tp;
    }
    if (split.feed_forward == SplitBy::whole && !experts) whole += all.matmul - attention;
    if (experts && !plan.sequence_parallel) whole += router;
  }
  FlopsEstimate own;
  own.matmul = all.matmul / ranks + whole * (1 - 1 / tp) * tp / ranks;
  own.attention_causal = attended;
  return own;
}

}  // namespace trainctl
