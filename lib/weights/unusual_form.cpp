#include "weights/unusual_form.h"

#include <algorithm>

namespace trainctl {

std::string unusual_form(const ModelShape& model) {
  ModelConfig family;
  family.family = model.family;
  const ModelShape usual = model_shape(family);
  const bool gpt2 = model.family == Family::gpt2;
  const auto any_rope = [&](const auto& differs) {
    return std::ranges::any_of(model.ropes, differs);
  };
  const auto any_kind = [&](const auto& differs) {
    return std::ranges::any_of(model.kinds, differs);
  };
  const bool qk_norm = any_kind([](const LayerKind& kind) { return kind.qk_norm; });
  const struct {
    const char* key;
    bool differs;
  } forms[] = {
      {"add_out_bias", model.out_bias != (gpt2 && model.mlp_bias)},
      {"add_mlp_bias", model.mlp_bias && !gpt2},
      {"activation", model.activation != usual.activation},
      {"gated_linear_unit", model.gated_mlp != usual.gated_mlp},
      {"glu_linear_offset", model.gate_offset != 0},
      {"activation_func_clamp_value", model.gate_limit != 0},
      {"norm_placement", model.norm_placement != NormPlacement::pre},
      {"qk_layernorm_form", qk_norm && model.qk_norm_form != QkNormForm::head},
      {"qk_layernorm_after_rope", qk_norm && model.qk_norm_after_rope},
      {"zero_centered_norm", model.zero_centered_norm},
      {"embedding_multiplier", model.embedding_multiplier != 1},
      {"residual_multiplier", model.residual_multiplier != 1},
      {"logit_scale", model.logit_scale != 1},
      {"final_logit_softcapping", model.logit_cap != 0},
      {"softmax_scale", model.softmax_scale != default_softmax_scale(model.head_dim)},
      {"attn_logit_softcapping", model.attention_cap != 0},
      {"sliding_window", any_kind([](const LayerKind& kind) { return kind.limits.window != 0; })},
      {"attention_chunk_size",
       any_kind([](const LayerKind& kind) { return kind.limits.chunk != 0; })},
      {"attention_temperature",
       any_kind([](const LayerKind& kind) { return kind.temperature >= 0; })},
      {"softmax_type", any_kind([](const LayerKind& kind) { return kind.sinks; })},
      {"attention_output_gate", model.output_gate},
      {"rotary_percent", any_rope([&](const RopeForm& r) { return r.size != model.head_dim; })},
      {"rotary_interleaved", any_rope([](const RopeForm& r) { return r.interleaved; })},
      {"rope_scaling.type", any_rope([](const RopeForm& r) {
         return r.type != RopeType::none && r.type != RopeType::llama3;
       })},
      {"rope_scaling.attention_factor",
       any_rope([](const RopeForm& r) { return r.amplitude != 1; })},
  };
  for (const auto& form : forms) {
    if (form.differs) return form.key;
  }
  return "";
}

}  // namespace trainctl
