#include "plan/model/form.h"

namespace trainctl {

LayerForm layer_form(const ModelShape& model, std::int64_t layer) {
  const LayerKind& kind = model.kind(layer);
  LayerForm form{.hidden = model.hidden,
                 .keys = model.seq_length,
                 .longest = model.longest_sequence(),
                 .norm = model.norm_kind,
                 .norms = model.norm_placement,
                 .copies_gradients = model.hidden_dropout > 0 || model.residual_multiplier != 1 ||
                                     norms_after(model.norm_placement),
                 .attention = {model.heads, kind.kv_heads, model.head_dim, kind.qk_norm, kind.rope,
                               model.qk_norm_form == QkNormForm::whole, kind.limits,
                               kind.temperature, kind.sinks, model.output_gate,
                               kind.qk_norm && model.qk_norm_form != QkNormForm::l2}};
  if (kind.experts) {
    form.feed_forward = ExpertsForm{.experts = model.experts,
                                    .topk = model.topk,
                                    .expert_ffn = model.expert_ffn,
                                    .shared_ffn = model.shared_ffn,
                                    .gated = model.gated_mlp,
                                    .shared_gate = model.shared_gate,
                                    .routing_group = model.routing_group,
                                    .capacity_group = model.capacity_group,
                                    .capacity_factor = model.capacity_factor,
                                    .rounds = model.rounds,
                                    .free_counts = model.free_counts};
  } else {
    form.feed_forward = MlpForm{kind.ffn, model.gated_mlp};
  }
  return form;
}

int first_block_with(const ModelShape& model, bool experts) {
  for (int unit = 1; unit <= model.layers; ++unit) {
    if (model.kind(unit - 1).experts == experts) return unit;
  }
  return 0;
}

std::int64_t dense_layers_first(const ModelShape& model) {
  const int first = first_block_with(model, true);
  return first > 0 ? first - 1 : model.layers;
}

}  // namespace trainctl
