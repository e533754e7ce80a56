#include "plan/model/experts.h"

#include "plan/model/mlp.h"

namespace trainctl {

Products router_products(const LayerForm& form, const LocalShape& local) {
  const auto& experts = std::get<ExpertsForm>(form.feed_forward);
  Products products{{{}, local.stream_rows, form.hidden, experts.experts}};
  if (experts.shared_gate) products.push_back({{}, local.stream_rows, form.hidden, 1});
  return products;
}

Products routed_products(const LayerForm& form, const LocalShape& local, std::int64_t tokens) {
  const auto& experts = std::get<ExpertsForm>(form.feed_forward);
  const std::int64_t rows = tokens * experts.topk;
  Products products = feed_forward_products(rows, form.hidden, local.expert_ffn, experts.gated);
  products.insert(products.begin(), {BlockPart::mlp, rows, 0, form.hidden});
  return products;
}

Products shared_products(const LayerForm& form, const LocalShape& local) {
  const auto& experts = std::get<ExpertsForm>(form.feed_forward);
  if (experts.shared_ffn == 0) return {};
  return feed_forward_products(local.tokens, form.hidden, local.shared_ffn, experts.gated);
}

}  // namespace trainctl
