#include "plan/tables/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/at.h"
#include "base/integers.h"

namespace trainctl {

namespace {

/// Bounds a value that may not be checked yet, so that computing with it does not overflow.
std::int64_t bounded(std::int64_t value) {
  return std::clamp<std::int64_t>(value, 0, std::int64_t{1} << 40);
}

constexpr std::int64_t max_layers = 10'000;

std::int64_t bounded_layers(const ModelConfig& config) {
  return std::clamp<std::int64_t>(config.num_layers, 0, max_layers);
}

/// Rounds up to a multiple; both values may still be invalid.
std::int64_t padded(std::int64_t value, std::int64_t multiple) {
  return multiple < 1 ? value : round_up(bounded(value), bounded(multiple));
}

/// The factor of cos and sin in a RoPE table.
double amplitude_of(RopeType type, const RopeScalingConfig& scaling, double positions) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (type == RopeType::yarn) {
    const auto grown = [&](double scale) {
      return scaling.factor > 1 ? 0.1 * scale * std::log(scaling.factor) + 1 : 1.0;
    };
    const bool both = scaling.mscale > 0 && scaling.mscale_all_dim > 0;
    return both ? grown(scaling.mscale) / grown(scaling.mscale_all_dim) : grown(1);
  }
  if (type != RopeType::longrope) return 1;
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double longer = positions / original;
  return longer > 1 ? std::sqrt(1 + std::log(longer) / std::log(original)) : 1.0;
}

RopeForm rope_of(const ModelConfig& config, const ModelShape& model) {
  const RopeScalingConfig& scaling = config.rope_scaling;
  RopeForm rope;
  const double part = std::clamp(config.rotary_percent, 0.0, 1.0);
  rope.size = static_cast<std::int64_t>(part * static_cast<double>(model.head_dim));
  rope.base = config.rotary_base;
  rope.type = scaling.type.value_or(scaling.factor > 1 ? RopeType::llama3 : RopeType::none);
  rope.scaling = scaling;
  rope.interleaved = config.rotary_interleaved;
  if (rope.type == RopeType::none) return rope;
  rope.amplitude = amplitude_of(rope.type, scaling, static_cast<double>(model.positions));
  if (rope.type != RopeType::longrope) return rope;
  const bool extended = model.seq_length > scaling.original_max_position_embeddings;
  rope.pair_factor = (extended ? scaling.long_factor : scaling.short_factor).value_or(NumberList{});
  return rope;
}

/// The index of `value` in the list; appends it if it is missing.
template <class Value>
std::size_t number_in(std::vector<Value>& list, const Value& value) {
  const auto found = std::ranges::find(list, value);
  if (found != list.end()) return static_cast<std::size_t>(found - list.begin());
  list.push_back(value);
  return list.size() - 1;
}

/// The kind of all layers of a model with this config, apart from experts.
LayerKind kind_of(const ModelConfig& config, ModelShape& model) {
  LayerKind kind;
  // With 8/3 of the width, the three matrices of SwiGLU have the size of two matrices of a 4x MLP.
  kind.ffn = config.ffn_hidden_size.value_or(model.gated_mlp
                                                 ? round_up(8 * bounded(model.hidden), 3 * 256) / 3
                                                 : 4 * bounded(model.hidden));
  kind.kv_heads = config.num_query_groups.value_or(model.heads);
  kind.qk_norm = config.qk_layernorm;
  kind.limits = {config.sliding_window.value_or(0), config.attention_chunk_size.value_or(0)};
  kind.sinks = config.softmax_type == "learnable";
  if (config.attention_temperature.beta > 0) {
    kind.temperature =
        static_cast<int>(number_in(model.temperatures, config.attention_temperature));
  }
  const bool turns = !model.learned_positions;
  if (turns && config.use_rope.value_or(true)) {
    kind.rope = static_cast<int>(number_in(model.ropes, rope_of(config, model)));
  }
  return kind;
}

/// Whether a layer has experts if its entry does not specify it.
bool usually_has_experts(const MoeConfig& moe, std::int64_t layer) {
  return moe.num_experts > 1 && layer >= moe.first_dense_layers &&
         layer % std::max<std::int64_t>(1, moe.layer_frequency) == 0;
}

/// Lists the kinds of all layers in order of first occurrence. Kinds that differ only in name count
/// as one.
void add_kinds(const ModelConfig& config, const MoeConfig& moe, ModelShape& model) {
  std::vector<LayerEntry> entries = config.layers;
  if (entries.empty()) entries.emplace_back();
  const std::vector<std::uint8_t> order = layer_order(config).values;
  std::vector<std::optional<LayerKind>> given(entries.size());
  std::vector<LayerKind> forms;  // the kinds without their names, to compare
  const auto number_of = [&](std::int64_t layer) {
    const std::size_t entry = order.empty() ? 0 : at(order, layer);
    std::optional<LayerKind>& alike = given[entry];
    if (!alike) alike = kind_of(config_of(config, entries[entry]), model);
    LayerKind kind = *alike;
    kind.experts = entries[entry].experts.value_or(usually_has_experts(moe, layer));
    const std::size_t number = number_in(forms, kind);
    if (number == model.kinds.size()) {
      kind.name = entries[entry].name;
      model.kinds.push_back(std::move(kind));
    }
    return static_cast<std::uint8_t>(number);
  };
  for (std::int64_t layer = 0; layer < bounded_layers(config); ++layer) {
    model.kind_of_layer.push_back(number_of(layer));
  }
  if (model.kinds.empty()) model.kinds = {kind_of(config_of(config, entries.front()), model)};
  if (model.kinds.size() == 1) model.kind_of_layer.clear();
}

}  // namespace

ParsedList<std::uint8_t> layer_order(const ModelConfig& config) {
  ParsedList<std::uint8_t> order;
  if (config.layers.empty()) return order;
  const std::int64_t layers = bounded_layers(config);
  std::vector<std::uint8_t> once;
  if (config.layer_pattern) {
    const auto number_of = [&](std::string_view name) -> std::optional<std::uint8_t> {
      const auto found = std::ranges::find(config.layers, name, &LayerEntry::name);
      if (found == config.layers.end()) return std::nullopt;
      return static_cast<std::uint8_t>(found - config.layers.begin());
    };
    ParsedList<std::uint8_t> read =
        parse_repeated<std::uint8_t>(*config.layer_pattern, max_layers, "layers", number_of);
    once = std::move(read.values);
    order.error = std::move(read.error);
  }
  if (!config.layer_pattern || !order.error.empty()) {
    once.clear();
    for (std::size_t entry = 0; entry < config.layers.size(); ++entry) {
      const std::int64_t count =
          std::clamp<std::int64_t>(config.layers[entry].count, 1, max_layers);
      once.insert(once.end(), static_cast<std::size_t>(count), static_cast<std::uint8_t>(entry));
    }
  }
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    order.values.push_back(once[static_cast<std::size_t>(layer) % once.size()]);
  }
  return order;
}

ModelConfig config_of(const ModelConfig& model, const LayerEntry& entry) {
  ModelConfig config = model;
  const auto take = [](auto& ours, const auto& given) {
    if (given) ours = *given;
  };
  take(config.ffn_hidden_size, entry.ffn_hidden_size);
  take(config.num_query_groups, entry.num_query_groups);
  take(config.qk_layernorm, entry.qk_layernorm);
  take(config.use_rope, entry.use_rope);
  take(config.rotary_base, entry.rotary_base);
  take(config.rope_scaling, entry.rope_scaling);
  take(config.sliding_window, entry.sliding_window);
  take(config.attention_chunk_size, entry.attention_chunk_size);
  take(config.attention_temperature, entry.attention_temperature);
  take(config.softmax_type, entry.softmax_type);
  return config;
}

double default_softmax_scale(std::int64_t head_dim) {
  return head_dim > 0 ? 1.0F / std::sqrt(static_cast<float>(head_dim)) : 1.0F;
}

ModelShape model_shape(const ModelConfig& config, const MoeConfig& moe) {
  const bool gpt2 = config.family == "gpt2";
  ModelShape model;
  model.family = config.family;
  model.norm_kind = gpt2 ? NormKind::layer_norm : NormKind::rms_norm;
  model.learned_positions = gpt2;
  model.activation = config.activation.value_or(gpt2 ? Activation::gelu : Activation::silu);
  model.gated_mlp = config.gated_linear_unit.value_or(!gpt2);
  model.gate_offset = config.glu_linear_offset;
  model.gate_limit = config.activation_func_clamp_value.value_or(0);
  model.layers = config.num_layers;
  model.hidden = config.hidden_size;
  model.heads = config.num_attention_heads;
  model.head_dim = config.kv_channels.value_or(model.heads > 0 ? model.hidden / model.heads : 0);
  model.seq_length = config.seq_length;
  model.positions = config.max_position_embeddings.value_or(model.seq_length);
  add_kinds(config, moe, model);
  model.vocab = config.vocab_size;
  model.padded_vocab = padded(model.vocab, config.make_vocab_size_divisible_by);
  model.tied = config.tie_word_embeddings.value_or(gpt2);
  const bool bias = config.add_bias_linear.value_or(gpt2);
  model.qkv_bias = config.add_qkv_bias.value_or(bias);
  model.out_bias = config.add_out_bias.value_or(bias);
  model.mlp_bias = config.add_mlp_bias.value_or(bias);
  model.norm_epsilon = config.norm_epsilon;
  model.softmax_scale = config.softmax_scale.value_or(default_softmax_scale(model.head_dim));
  model.attention_cap = config.attn_logit_softcapping.value_or(0);
  model.zero_centered_norm = config.zero_centered_norm;
  model.norm_placement = config.norm_placement;
  model.qk_norm_form = config.qk_layernorm_form;
  model.qk_norm_after_rope =
      config.qk_layernorm_after_rope.value_or(config.qk_layernorm_form == QkNormForm::l2);
  model.output_gate = config.attention_output_gate;
  model.embedding_multiplier = config.embedding_multiplier;
  model.residual_multiplier = config.residual_multiplier;
  model.logit_scale = config.logit_scale;
  model.logit_cap = config.final_logit_softcapping.value_or(0);
  model.hidden_dropout = config.hidden_dropout;
  model.attention_dropout = config.attention_dropout;
  model.embedding_dropout = config.embedding_dropout;
  model.init_std = config.perform_initialization ? config.init_method_std : 0.0;
  model.whole_logits = !config.cross_entropy_loss_fusion;
  model.experts = moe.num_experts;
  model.topk = moe.router_topk;
  model.expert_ffn = moe.ffn_hidden_size.value_or(model.kinds.front().ffn);
  model.sigmoid_scores = moe.router_score_function == "sigmoid";
  model.topk_scaling = moe.router_topk_scaling_factor;
  model.expert_groups = std::max<std::int64_t>(1, moe.router_num_groups);
  model.group_topk = std::max<std::int64_t>(1, moe.router_group_topk);
  model.expert_bias = moe.router_enable_expert_bias;
  model.bias_rate = moe.router_bias_update_rate;
  model.shared_ffn = moe.shared_expert_intermediate_size.value_or(0);
  model.shared_gate = moe.shared_expert_gate && model.shared_ffn > 0;
  model.rounds = moe.router_choice == "rounds";
  model.pre_softmax = moe.router_pre_softmax.value_or(model.topk == 1);
  const bool whole = model.sigmoid_scores ? model.topk == 1 : model.pre_softmax;
  model.weights = moe.router_weights.value_or(whole ? ExpertWeights::all : ExpertWeights::chosen);
  const bool by_micro_batch = moe.expert_group == "micro_batch";
  model.routing_group = moe.expert_group_size.value_or(by_micro_batch ? 0 : model.seq_length);
  model.capacity_group = moe.capacity_group_size.value_or(model.routing_group);
  model.free_counts =
      moe.balance_counts == "free" && (model.expert_bias || model.group_topk < model.expert_groups);
  model.capacity_factor = moe.capacity_factor.value_or(0);
  model.overflow = moe.overflow;
  model.balance_factor = moe.router_load_balancing_type == "none" ? 0 : moe.aux_loss_factor;
  model.z_factor = moe.z_loss_factor;
  return model;
}

ModelShape with_groups(ModelShape model, std::int64_t micro_batch_tokens) {
  if (model.routing_group == 0) model.routing_group = micro_batch_tokens;
  if (model.capacity_group == 0) model.capacity_group = micro_batch_tokens;
  return model;
}

std::int64_t sequences_of_groups(const ModelShape& model) {
  if (model.experts == 1) return 1;
  const std::int64_t sequence = std::max<std::int64_t>(1, model.seq_length);
  std::int64_t tokens = sequence;
  for (const std::int64_t group : {model.routing_group, model.capacity_group}) {
    const std::int64_t more = group > 0 ? group / std::gcd(tokens, group) : 1;
    if (more > (std::int64_t{1} << 60) / tokens) return 1;  // no micro-batch is so large
    tokens *= more;
  }
  return tokens / sequence;
}

}  // namespace trainctl
