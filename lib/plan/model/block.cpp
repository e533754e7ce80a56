#include "plan/model/block.h"

#include "plan/model/attention.h"
#include "plan/model/experts.h"
#include "plan/model/mlp.h"

namespace trainctl {

namespace {

/// The statistics of a norm that is repeated with `part`.
NormRows<RowSpec> statistics_of(const LayerForm& form, std::int64_t rows,
                                std::optional<BlockPart> part) {
  const RowSpec statistic{{rows}, DType::f32, life::statistic, part};
  return {.mean = form.norm == NormKind::layer_norm ? statistic : RowSpec{}, .rstd = statistic};
}

}  // namespace

NormRows<RowSpec> norm_rows(const LayerForm& form, const LayerShare& share, BlockPart part) {
  const std::int64_t rows = share.local.stream_rows;
  NormRows<RowSpec> declared = statistics_of(form, rows, part);
  declared.y = {{rows, form.hidden}, share.compute, life::for_weight, part};
  return declared;
}

NormRows<RowSpec> post_norm_rows(const LayerForm& form, const LayerShare& share,
                                 std::optional<BlockPart> part) {
  const std::int64_t rows = share.local.stream_rows;
  NormRows<RowSpec> declared = statistics_of(form, rows, part);
  declared.x = {{rows, form.hidden}, share.compute, life::for_backward, part};
  return declared;
}

Products block_products(const LayerForm& form, const LocalShape& local) {
  Products all;
  const auto norm = [&](bool there, std::optional<BlockPart> part) {
    if (there) all.push_back({part, local.stream_rows, 0, form.hidden});
  };
  const bool before = norms_before(form.norms);
  const bool after = norms_after(form.norms);
  norm(before, BlockPart::norm1);
  const auto add = [&](const Products& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(attention_products(form, local));
  norm(after, BlockPart::projection);
  norm(before, BlockPart::norm2);
  if (!form.has_experts()) {
    add(mlp_products(form, local));
  } else {
    add(router_products(form, local));
    add(routed_products(form, local));
    add(shared_products(form, local));
  }
  norm(after, {});
  return all;
}

Exchanges feed_forward_exchanges(const LayerForm& form, const LayerShare& share) {
  return form.has_experts() ? expert_exchanges(form, share) : mlp_exchanges(form, share);
}

LayerCall sliced_input_call(const LayerForm& form, const LayerShare& share) {
  return {.cargo = Cargo::sliced_inputs,
          .group = tensor_group,
          .ranks = share.mesh.tp,
          .rows = share.local.tokens,
          .width = form.hidden,
          .type = share.compute};
}

LocalShape whole_shape(const LayerForm& form, std::int64_t tokens) {
  LocalShape whole;
  whole.tokens = whole.stream_rows = whole.attention_rows = whole.mlp_rows = tokens;
  whole.met_tokens = tokens;
  whole.q = form.attention.q();
  whole.kv = form.attention.kv();
  if (!form.has_experts()) {
    whole.ffn = form.ffn;
  } else {
    whole.expert_ffn = form.expert_ffn;
    whole.shared_ffn = form.shared_ffn;
  }
  return whole;
}

}  // namespace trainctl
