// The field lists of the forms of a model's layers (docs/forms.md); see fields.h.
#pragma once

#include <concepts>
#include <type_traits>

#include "config/schema/field.h"
#include "config/schema/model_config.h"

namespace trainctl {

/// Accepts `Section` with or without const.
template <class Given, class Section>
concept Is = std::same_as<std::remove_const_t<Given>, Section>;

/// Fields of attention: which keys a query sees, and how they are scored.
template <class Visitor>
void attention_form_fields(Visitor& visit, Is<ModelConfig> auto& model) {
  visit(model.softmax_scale, field("softmax_scale", "Factor of the products of queries and keys")
                                 .above(0)
                                 .unset("1 / sqrt(kv_channels)"));
  visit(model.qk_layernorm_form,
        field("qk_layernorm_form",
              "head: q/k norms over each head; whole: over all heads at once; l2: over each head, "
              "without weights"));
  visit(model.qk_layernorm_after_rope,
        field("qk_layernorm_after_rope", "q/k norms come after RoPE, not before it")
            .unset("true with qk_layernorm_form l2, else false"));
  visit(model.sliding_window,
        field("sliding_window", "Keys that a query sees, up to its own and with it")
            .from(1)
            .to(1 << 24)
            .unset("all"));
  visit(model.attention_chunk_size,
        field("attention_chunk_size",
              "A query sees the keys of its chunk, which has this number of tokens")
            .from(1)
            .to(1 << 24)
            .unset("all"));
  visit(model.attn_logit_softcapping,
        field("attn_logit_softcapping", "Scores s become c tanh(s / c)").above(0).unset("no cap"));
  visit.section(model.attention_temperature,
                field("attention_temperature", "Queries grow with their position"));
  visit(model.softmax_type, field("softmax_type",
                                  "learnable: the softmax of each head has one more term, exp of a "
                                  "number that is learned, which goes to no value"));
  visit(model.attention_output_gate,
        field("attention_output_gate",
              "The result of attention is multiplied by the sigmoid of one more product of its "
              "input, feature by feature"));
}

/// Fields of the feed-forward layers, the norms, the embedding and the output layer.
template <class Visitor>
void layer_form_fields(Visitor& visit, Is<ModelConfig> auto& model) {
  visit(model.add_out_bias, field("add_out_bias", "A bias in the output projection of attention")
                                .unset("add_bias_linear"));
  visit(model.add_mlp_bias,
        field("add_mlp_bias", "Biases in the MLP's layers, and in those of experts")
            .unset("add_bias_linear"));
  visit(model.activation,
        field("activation",
              "Between the MLP's layers: gelu (tanh form), silu, relu2 (squared ReLU), "
              "quick_gelu (x sigmoid(1.702 x)) or sigmoid")
            .unset("gelu (gpt2), silu (llama)"));
  visit(model.gated_linear_unit,
        field("gated_linear_unit", "The MLP is activation(gate) * up instead of activation(up)")
            .unset("false (gpt2), true (llama)"));
  visit(model.glu_linear_offset,
        field("glu_linear_offset", "Added to up in a gated MLP").from(-1000).to(1000));
  visit(model.activation_func_clamp_value,
        field("activation_func_clamp_value",
              "In a gated MLP the gate is at most this, up between this and its negative")
            .above(0)
            .unset("no limit"));
  visit(model.norm_placement,
        field("norm_placement",
              "Norms before attention and MLP, on what they add to the residual "
              "stream, or both"));
  visit(model.zero_centered_norm,
        field("zero_centered_norm", "Norms multiply by 1 + weight, and weights start at 0"));
  visit(model.embedding_multiplier,
        field("embedding_multiplier", "Factor of the token embedding").above(0));
  visit(model.residual_multiplier,
        field("residual_multiplier", "Factor of what attention and MLP add to the residual stream")
            .above(0));
  visit(model.logit_scale, field("logit_scale", "Factor of the logits").above(0));
  visit(model.final_logit_softcapping,
        field("final_logit_softcapping", "Logits z become c tanh(z / c)").above(0).unset("no cap"));
}

}  // namespace trainctl
