#include "plan/model/form.h"

namespace trainctl {

LayerForm layer_form(const ModelShape& model, std::int64_t layer) {
  LayerForm form{.hidden = model.hidden,
                 .keys = model.seq_length,
                 .attention = {model.q_features(), model.kv_features()}};
  if (model.has_experts(layer)) {
    form.feed_forward = ExpertsForm{.experts = model.experts,
                                    .topk = model.topk,
                                    .expert_ffn = model.expert_ffn,
                                    .shared_ffn = model.shared_ffn,
                                    .gated = model.gated_mlp,
                                    .shared_gate = model.shared_gate};
  } else {
    form.feed_forward = MlpForm{model.ffn, model.gated_mlp};
  }
  return form;
}

}  // namespace trainctl
