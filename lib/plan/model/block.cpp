#include "plan/model/block.h"

#include "plan/model/attention.h"
#include "plan/model/experts.h"
#include "plan/model/mlp.h"

namespace trainctl {

Products block_products(const LayerForm& form, const LocalShape& local, std::int64_t routed) {
  Products all{{BlockPart::norm1, local.stream_rows, 0, form.hidden}};
  const auto add = [&](const Products& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(attention_products(form, local));
  all.push_back({BlockPart::norm2, local.stream_rows, 0, form.hidden});
  if (!form.has_experts()) {
    add(mlp_products(form, local));
    return all;
  }
  add(router_products(form, local));
  add(routed_products(form, local, routed));
  add(shared_products(form, local));
  return all;
}

LocalShape whole_shape(const LayerForm& form, std::int64_t tokens) {
  LocalShape whole;
  whole.tokens = whole.stream_rows = whole.attention_rows = whole.mlp_rows = tokens;
  whole.q = form.attention.q;
  whole.kv = form.attention.kv;
  if (const auto* mlp = std::get_if<MlpForm>(&form.feed_forward)) {
    whole.ffn = mlp->ffn;
  } else {
    const auto& experts = std::get<ExpertsForm>(form.feed_forward);
    whole.expert_ffn = experts.expert_ffn;
    whole.shared_ffn = experts.shared_ffn;
  }
  return whole;
}

}  // namespace trainctl
