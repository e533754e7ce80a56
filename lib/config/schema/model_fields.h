// The field lists of the model section; see fields.h.
#pragma once

#include <concepts>
#include <type_traits>

#include "config/schema/field.h"
#include "config/schema/model_config.h"
#include "config/schema/model_form_fields.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<RopeScalingConfig> auto& rope) {
  visit(rope.type, field("type", "How frequencies change for a context longer than the original")
                       .unset("llama3 where factor is above 1, else none"));
  visit(rope.factor,
        field("factor", "Context length divided by the original context length").from(1));
  visit(rope.low_freq_factor,
        field("low_freq_factor", "Wavelengths above original / low_freq_factor are scaled fully")
            .above(0));
  visit(rope.high_freq_factor,
        field("high_freq_factor", "Wavelengths below original / high_freq_factor are not scaled")
            .above(0));
  visit(rope.original_max_position_embeddings,
        field("original_max_position_embeddings", "Original context length of the frequencies")
            .from(1)
            .to(1 << 24));
  visit(rope.attention_factor,
        field("attention_factor", "Factor of cos and sin")
            .above(0)
            .unset("yarn: 0.1 ln(factor) + 1; longrope: by the lengths of the contexts; else 1"));
  visit(rope.beta_fast,
        field("beta_fast", "yarn: pairs with more turns over the original context stay").above(0));
  visit(rope.beta_slow,
        field("beta_slow", "yarn: pairs with fewer turns are scaled fully").above(0));
  visit(rope.mscale, field("mscale",
                           "yarn, with mscale_all_dim: cos and sin are multiplied by the ratio of "
                           "0.1 mscale ln(factor) + 1 for both; 0: as if not given")
                         .from(0));
  visit(rope.mscale_all_dim, field("mscale_all_dim", "yarn: see mscale").from(0));
  visit(rope.truncate, field("truncate", "yarn: its bounds are whole pairs"));
  visit(rope.alpha, field("alpha",
                          "alpha: the base is multiplied by alpha^(d / (d - 2)), d rotary "
                          "features of a head")
                        .above(0));
  visit(rope.short_factor, field("short_factor",
                                 "longrope: what each pair's frequency is divided by, up to the "
                                 "original context")
                               .above(0)
                               .unset("required with longrope"));
  visit(rope.long_factor, field("long_factor", "longrope: the same for longer sequences")
                              .above(0)
                              .unset("required with longrope"));
}

template <class Visitor>
void fields(Visitor& visit, Is<TemperatureConfig> auto& temperature) {
  visit(temperature.beta,
        field("beta", "Queries are multiplied by 1 + beta ln(1 + floor((position + add) / floor))")
            .from(0));
  visit(temperature.floor, field("floor", "Positions after which the factor grows again").from(1));
  visit(temperature.add, field("add", "Added to positions, which begin at 0").from(0).to(1));
}

template <class Visitor>
void fields(Visitor& visit, Is<LayerEntry> auto& entry) {
  visit(
      entry.name,
      field("name", "Of letters, digits and _, for layer_pattern and messages").from(1).required());
  visit(entry.count, field("count", "Neighbouring layers of this kind; not with layer_pattern")
                         .from(1)
                         .to(10'000));
  visit(entry.ffn_hidden_size,
        field("ffn_hidden_size", "As the model's").from(1).to(1 << 22).unset("the model's"));
  visit(entry.num_query_groups,
        field("num_query_groups", "As the model's").from(1).to(65'536).unset("the model's"));
  visit(entry.experts, field("experts",
                             "Experts instead of a plain MLP; not together "
                             "with moe.first_dense_layers and moe.layer_frequency")
                           .unset("as moe.first_dense_layers and moe.layer_frequency say"));
  visit(entry.qk_layernorm, field("qk_layernorm", "As the model's").unset("the model's"));
  visit(entry.use_rope, field("use_rope", "As the model's").unset("the model's"));
  visit(entry.rotary_base, field("rotary_base", "As the model's").above(1).unset("the model's"));
  visit.section(
      entry.rope_scaling,
      field("rope_scaling", "In place of the model's; null for none").unset("the model's"));
  visit(entry.sliding_window,
        field("sliding_window", "As the model's").from(1).to(1 << 24).unset("the model's"));
  visit(entry.attention_chunk_size,
        field("attention_chunk_size", "As the model's").from(1).to(1 << 24).unset("the model's"));
  visit.section(entry.attention_temperature,
                field("attention_temperature", "In place of the model's; null for none")
                    .unset("the model's"));
  visit(entry.softmax_type, field("softmax_type", "As the model's").unset("the model's"));
}

template <class Visitor>
void model_shape_fields(Visitor& visit, Is<ModelConfig> auto& model) {
  visit(model.num_layers, field("num_layers", "Transformer blocks").from(1).to(10'000).required());
  visit(model.hidden_size,
        field("hidden_size", "Width of the residual stream").from(1).to(1 << 20).required());
  visit(model.num_attention_heads,
        field("num_attention_heads", "Query heads per block").from(1).to(65'536).required());
  visit(model.seq_length,
        field("seq_length", "Tokens per training sequence").from(1).to(1 << 24).required());
  visit(model.vocab_size, field("vocab_size", "Number of token ids, before padding")
                              .from(2)
                              .to(2'147'483'647)
                              .required());
  visit(model.layers,
        field("layers",
              "Kinds of layers, each with keys of its own; they follow each other, `count` "
              "times each, and again from the first until there are num_layers"));
  visit(model.layer_pattern, field("layer_pattern",
                                   "Names of `layers` in the order of the layers, as in `local*5, "
                                   "global`, repeated until there are num_layers")
                                 .from(1)
                                 .unset("the entries of `layers` in their order"));
  visit(model.ffn_hidden_size,
        field("ffn_hidden_size", "Width inside the MLP")
            .from(1)
            .to(1 << 22)
            .unset("4 x hidden_size (gpt2); 8/3 x hidden_size, rounded up to 256 (llama)"));
  visit(model.num_query_groups, field("num_query_groups", "Key and value heads per block")
                                    .from(1)
                                    .to(65'536)
                                    .unset("num_attention_heads"));
  visit(model.kv_channels, field("kv_channels", "Size of one head")
                               .from(1)
                               .to(65'536)
                               .unset("hidden_size / num_attention_heads"));
  visit(model.max_position_embeddings,
        field("max_position_embeddings", "Positions the model can address")
            .from(1)
            .to(1 << 24)
            .unset("seq_length"));
}

template <class Visitor>
void fields(Visitor& visit, Is<ModelConfig> auto& model) {
  visit(model.preset,
        field("preset", "A known model; it fills every key that the file does not set")
            .from(1)
            .unset("no preset"));
  visit(model.from, field("from",
                          "Directory of the model to start from: of Hugging Face, of a run or of a "
                          "checkpoint. Its config.json or config.yaml fills every key that the "
                          "file does not set, and its weights are read")
                        .from(1)
                        .unset("new weights"));
  visit(model.family, field("family",
                            "gpt2: learned positions, LayerNorm, GELU; llama: RoPE, "
                            "RMSNorm, SwiGLU"));
  model_shape_fields(visit, model);
  visit(model.tie_word_embeddings,
        field("tie_word_embeddings", "The output layer shares the token embedding")
            .unset("true (gpt2), false (llama)"));
  visit(
      model.add_bias_linear,
      field("add_bias_linear", "Biases in the linear layers").unset("true (gpt2), false (llama)"));
  visit(model.add_qkv_bias,
        field("add_qkv_bias", "Biases in the q, k and v projections").unset("add_bias_linear"));
  visit(model.qk_layernorm,
        field("qk_layernorm", "RMSNorm on q and k (llama); qk_layernorm_form says over what"));
  visit(model.norm_epsilon,
        field("norm_epsilon", "Added to the variance in norms").above(0).below(1));
  visit(model.use_rope, field("use_rope", "Queries and keys turn with their position (RoPE)")
                            .unset("true (llama), false (gpt2)"));
  visit(model.rotary_base, field("rotary_base", "Base of the RoPE frequencies (theta)").above(1));
  visit(model.rotary_percent,
        field("rotary_percent", "Part of each head's features that RoPE turns").above(0).to(1));
  visit(model.rotary_interleaved,
        field("rotary_interleaved", "RoPE turns pairs of neighbours, not of a head's halves"));
  visit.section(model.rope_scaling, field("rope_scaling", "RoPE for longer contexts"));
  attention_form_fields(visit, model);
  layer_form_fields(visit, model);
  visit(model.hidden_dropout,
        field("hidden_dropout", "Dropout after attention and MLP").from(0).below(1));
  visit(model.attention_dropout,
        field("attention_dropout", "Dropout on attention weights").from(0).below(1));
  visit(model.embedding_dropout,
        field("embedding_dropout", "Dropout after the embedding").from(0).below(1));
  visit(model.init_method_std,
        field("init_method_std", "Standard deviation of initial weights").above(0).to(100));
  visit(model.make_vocab_size_divisible_by,
        field("make_vocab_size_divisible_by", "The vocabulary is padded to a multiple of this")
            .from(1)
            .to(1 << 20));
  visit(model.perform_initialization,
        field("perform_initialization",
              "Draw the weights from the seed; false: they start at 0, to be loaded"));
  visit(model.use_cpu_initialization,
        field("use_cpu_initialization", "Initial weights are the same on every device"));
  visit(model.use_te_rng_tracker,
        field("use_te_rng_tracker", "Random numbers depend only on global indices"));
  visit(
      model.cross_entropy_loss_fusion,
      field("cross_entropy_loss_fusion",
            "Compute the loss in parts of the tokens; false: all logits of a micro-batch at once"));
  visit(model.cross_entropy_fusion_impl,
        field("cross_entropy_fusion_impl", "The fused loss; both words: trainctl's own"));
}

}  // namespace trainctl
