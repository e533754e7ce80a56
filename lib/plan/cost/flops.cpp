#include "plan/cost/estimate.h"
#include "plan/cost/real.h"
#include "plan/model/attention.h"
#include "plan/model/block.h"
#include "plan/model/experts.h"

namespace trainctl {

namespace {

/// The input's and the weight's gradient cost as much as the forward.
constexpr double forward_and_backward = 3;

void add(FlopsEstimate& flops, const Products& products) {
  for (const Product& one : products) {
    if (one.is_attention()) {
      flops.attention_full += forward_and_backward * 4 * one.elements() * real(one.keys);
      flops.attention_causal += forward_and_backward * one.flops();
    } else {
      flops.matmul += forward_and_backward * one.flops();
    }
  }
}

double matmul_flops(const Products& products) {
  FlopsEstimate flops;
  add(flops, products);
  return flops.matmul;
}

}  // namespace

FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens,
                             const std::vector<UnitRange>& units) {
  FlopsEstimate flops;
  any_block(units, model.layers, [&](int unit) {
    const LayerForm form = layer_form(model, unit - 1);
    add(flops, block_products(form, whole_shape(form, tokens)));
    return false;
  });
  if (holds(units, head_unit(model.layers))) {
    add(flops, {{{}, tokens, model.hidden, model.padded_vocab}});
  }
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
  double whole = 0;  // of the products that every tensor-parallel rank makes
  double attended = all.attention_causal / ranks;
  if (unit == head_unit(model.layers)) {
    if (plan.splits.head == SplitBy::whole) whole = all.matmul;
  } else if (unit > 0) {
    const BlockSplit split = plan.splits.of_unit(unit);
    const LayerForm form = layer_form(model, unit - 1);
    const LocalShape shape = whole_shape(form, tokens);
    const double attention = matmul_flops(attention_products(form, shape));
    if (split.attention == SplitBy::whole) {
      whole += attention;
      attended *= tp;
    }
    if (!form.has_experts()) {
      if (split.feed_forward == SplitBy::whole) whole += all.matmul - attention;
    } else if (!plan.sequence_parallel) {
      whole += matmul_flops(router_products(form, shape));
    }
  }
  FlopsEstimate own;
  own.matmul = all.matmul / ranks + whole * (1 - 1 / tp) * tp / ranks;
  own.attention_causal = attended;
  return own;
}

}  // namespace trainctl
