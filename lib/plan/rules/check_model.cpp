// Sizes of the model and kinds of its layers; then the forms of positions, attention, feed-forward
// layers, embedding and head.

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "config/schema/words.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

// Far above any real model, and small enough that products of two fit into 64 bits.
constexpr std::int64_t largest_depth = 10'000;
constexpr std::int64_t max_width = std::int64_t{1} << 24;
constexpr std::int64_t max_heads = std::int64_t{1} << 16;
constexpr std::int64_t max_vocabulary = (std::int64_t{1} << 31) - 1;  // token ids are 32-bit
constexpr std::int64_t max_head_size = 256;  // limit of the attention kernels

void check_ranges(const ModelConfig& model, Check& check) {
  check.range("model.num_layers", model.num_layers, 1, largest_depth);
  check.range("model.hidden_size", model.hidden_size, 1, max_width);
  check.range("model.num_attention_heads", model.num_attention_heads, 1, max_heads);
  check.range("model.seq_length", model.seq_length, 1, max_width);
  check.range("model.vocab_size", model.vocab_size, 1, max_vocabulary);
  check.range("model.ffn_hidden_size", model.ffn_hidden_size.value_or(1), 1, max_width);
  check.range("model.num_query_groups", model.num_query_groups.value_or(1), 1, max_heads);
  check.range("model.max_position_embeddings", model.max_position_embeddings.value_or(1), 1,
              max_width);
  check.range("model.make_vocab_size_divisible_by", model.make_vocab_size_divisible_by, 1,
              max_width);
  check.rule("model.norm_epsilon", model.norm_epsilon > 0, model.norm_epsilon, "above 0");
  check.rule("model.init_method_std", model.init_method_std >= 0, model.init_method_std,
             "at least 0");
  const auto dropout = [&check](const char* path, double value) {
    check.rule(path, value >= 0 && value < 1, value, "in [0, 1)");
  };
  dropout("model.hidden_dropout", model.hidden_dropout);
  dropout("model.attention_dropout", model.attention_dropout);
  dropout("model.embedding_dropout", model.embedding_dropout);
}

void check_heads(const ModelConfig& model, Check& check) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t heads = model.num_attention_heads;
  if (!check.clean({"model.hidden_size", "model.num_attention_heads", "model.kv_channels"})) return;
  if (!model.kv_channels && hidden % heads != 0) {
    return check.error(
        "heads-divide", "model.num_attention_heads",
        indivisible(named("hidden_size", hidden), named("num_attention_heads", heads)),
        formatted("set num_attention_heads to {}, hidden_size to {}, or give the head size "
                  "as kv_channels",
                  divisors_near(hidden, heads), multiples_near(heads, hidden)));
  }
  const std::int64_t size = model.kv_channels.value_or(hidden / heads);
  const std::string path = model.kv_channels ? "model.kv_channels" : "model.num_attention_heads";
  const std::string shown =
      model.kv_channels ? named("kv_channels", size)
                        : formatted("the head size (hidden_size {} / num_attention_heads {} = {})",
                                    hidden, heads, size);
  const std::string help = "set kv_channels to 32, 64 or 128";
  if (size < 1) check.error("out-of-range", path, shown + " must be at least 1", help);
  if (size > max_head_size) {
    check.error("head-size-limit", path,
                formatted("{} must be at most {}, the limit of the attention kernels", shown,
                          max_head_size),
                help);
  }
  if (size >= 1 && size % 2 != 0) {
    check.error("head-size-even", path,
                shown + " must be even: attention and rotary positions work on pairs", help);
  }
}

void check_groups(const ModelConfig& model, Check& check) {
  if (!model.num_query_groups ||
      !check.clean({"model.num_attention_heads", "model.num_query_groups"})) {
    return;
  }
  const std::int64_t heads = model.num_attention_heads;
  const std::int64_t groups = *model.num_query_groups;
  if (heads % groups == 0) return;
  check.error("groups-divide", "model.num_query_groups",
              indivisible(named("num_attention_heads", heads), named("num_query_groups", groups)),
              "set num_query_groups to " + divisors_near(heads, groups));
}

void check_positions(const ModelConfig& model, Check& check) {
  if (!model.max_position_embeddings ||
      !check.clean({"model.seq_length", "model.max_position_embeddings"})) {
    return;
  }
  const std::int64_t positions = *model.max_position_embeddings;
  if (model.seq_length <= positions) return;
  check.error("positions-cover", "model.seq_length",
              formatted("{} must be at most {}", named("seq_length", model.seq_length),
                        named("max_position_embeddings", positions)),
              formatted("set seq_length to at most {}, or max_position_embeddings to at least {}",
                        positions, model.seq_length));
}

void check_family(const ModelConfig& model, Check& check) {
  const ModelShape shape = model_shape(model);
  if (shape.norm_kind == NormKind::layer_norm && model.qk_layernorm) {
    check.error("qk-norm-family", "model.qk_layernorm",
                "qk_layernorm is true, but only the llama family has q/k norms",
                "set family to llama, or qk_layernorm to false");
  }
}

/// Keeps byte counts within 64 bits; also catches a misplaced digit.
void check_magnitude(const ModelConfig& model, Check& check) {
  if (!check.clean({"model.num_layers", "model.hidden_size", "model.num_attention_heads",
                    "model.ffn_hidden_size", "model.vocab_size", "model.kv_channels",
                    "model.make_vocab_size_divisible_by", "model.max_position_embeddings",
                    "model.seq_length"})) {
    return;
  }
  const double hidden = static_cast<double>(model.hidden_size);
  const double ffn = static_cast<double>(model.ffn_hidden_size.value_or(4 * model.hidden_size));
  const double heads = static_cast<double>(model.num_attention_heads);
  const double q = model.kv_channels ? heads * static_cast<double>(*model.kv_channels) : hidden;
  const double rows =
      2 * static_cast<double>(model.vocab_size + model.make_vocab_size_divisible_by) +
      static_cast<double>(model.max_position_embeddings.value_or(model.seq_length));
  const double count =
      rows * hidden + static_cast<double>(model.num_layers) * hidden * (4 * q + 3 * ffn);
  constexpr double most = 1e15;
  if (count <= most) return;
  check.error("model-too-large", "model",
              formatted("the model has about {} parameters, but the limit is {}", number(count),
                        number(most)),
              "reduce num_layers, hidden_size or ffn_hidden_size");
}

/// Checks the properties in which kinds of layers may differ, for a model with one kind.
void check_kind(const ModelConfig& model, Check& check) {
  check_ranges(model, check);
  check_groups(model, check);
  check_forms(model, check);
  check_family(model, check);
}

/// The path of a key in entry number `entry`, or the whole list if the entry does not set it.
std::string path_in_entry(const std::string& path, std::size_t entry, const Check& check) {
  const std::string_view section = "model.";
  const std::string own = formatted("model.layers.{}.{}", entry, path.substr(section.size()));
  return check.given(own) ? own : "model.layers";
}

/// The errors of check_kind() for a model with one kind of layers.
std::vector<Diagnostic> errors_of_kind(const ModelConfig& model) {
  const SourceMap nowhere;
  Diagnostics found;
  Check alone(nowhere, found);
  check_kind(model, alone);
  std::vector<Diagnostic> errors = found.list();
  std::erase_if(errors, [](const Diagnostic& one) { return one.severity != Severity::error; });
  return errors;
}

/// Checks each entry as a model of its own, without repeating errors of the whole model.
void check_entries(const ModelConfig& model, Check& check) {
  const std::vector<Diagnostic> of_all = errors_of_kind(model);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerEntry& entry = model.layers[i];
    for (const Diagnostic& one : errors_of_kind(config_of(model, entry))) {
      if (std::ranges::find(of_all, one.message, &Diagnostic::message) != of_all.end()) continue;
      check.error(one.code.c_str(), path_in_entry(one.path, i, check),
                  formatted("in layers {}, {}", entry.name, one.message), one.help);
    }
  }
}

void check_names(const ModelConfig& model, Check& check) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const std::string& name = model.layers[i].name;
    const std::string path = formatted("model.layers.{}.name", i);
    const bool plain =
        std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (!plain) {
      check.error("layer-kinds", path,
                  formatted("a name has letters, digits and _, found \"{}\"", name),
                  "write a name like local or full_1");
    }
    const auto same = std::ranges::find(model.layers, name, &LayerEntry::name);
    if (same == model.layers.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    check.error("layer-kinds", path, formatted("two kinds of layers are named \"{}\"", name),
                "give each kind once and its order as layer_pattern, or give them different names");
  }
}

/// `order` must be layer_order() of `model`.
void check_pattern(const ModelConfig& model, const ParsedList<std::uint8_t>& order, Check& check) {
  const char* path = "model.layer_pattern";
  if (!model.layer_pattern) return;
  const std::string names = joined(model.layers, ", ", &LayerEntry::name);
  if (model.layers.empty()) {
    check.error("layer-pattern", path, "layer_pattern is given, but layers names no kinds",
                "give the kinds as layers: [{name: local}, {name: global}]");
  } else if (!order.error.empty()) {
    check.error("layer-pattern", path, formatted("{} in \"{}\"", order.error, *model.layer_pattern),
                formatted("write names of layers ({}), as in \"{}*2, {}\"", names,
                          model.layers.front().name, model.layers.back().name));
  }
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (model.layers[i].count == 1) continue;
    check.error("layer-pattern", formatted("model.layers.{}.count", i),
                named("count", model.layers[i].count) +
                    " and layer_pattern both say how many layers follow each other",
                "remove count, or layer_pattern");
  }
}

void check_layers(const ModelConfig& model, Check& check) {
  if (!check.clean({"model.layers", "model.num_layers"})) return;
  const ParsedList<std::uint8_t> order = layer_order(model);
  check_names(model, check);
  check_pattern(model, order, check);
  check_entries(model, check);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const bool used = std::ranges::find(order.values, i) != order.values.end();
    check.no_effect(
        formatted("model.layers.{}.name", i), !used,
        formatted("none of the {} is of this kind", counted(model.num_layers, "layer")));
  }
}

}  // namespace

void check_model(const ModelConfig& model, Check& check) {
  check_kind(model, check);
  check_heads(model, check);
  check_positions(model, check);
  check_layers(model, check);
  if (!model.perform_initialization && !model.from && check.clean({"model.from"})) {
    check.warning("zero-weights", "model.perform_initialization",
                  "perform_initialization is false and model.from is not given, so that all "
                  "weights are 0 unless a run is resumed",
                  "set perform_initialization to true, or give model.from");
  }
  check_magnitude(model, check);
}

namespace {

constexpr std::int64_t max_tokens = std::int64_t{1} << 24;

std::string rope_path(const char* key) { return std::string("model.rope_scaling.") + key; }

void refuse_rope(const ModelConfig& model, Check& check) {
  const auto refuse = [&](const char* key, bool differs, const std::string& given) {
    if (!differs) return;
    check.error("rope-family", std::string("model.") + key,
                given + " is given, but the gpt2 family has learned positions, not rotary ones",
                std::string("set family to llama, or remove ") + key);
  };
  const ModelConfig usual;
  refuse("rotary_base", model.rotary_base != usual.rotary_base,
         named("rotary_base", number(model.rotary_base)));
  refuse("rotary_percent", model.rotary_percent != usual.rotary_percent,
         named("rotary_percent", number(model.rotary_percent)));
  refuse("rotary_interleaved", model.rotary_interleaved, "rotary_interleaved (true)");
  refuse("use_rope", model.use_rope.value_or(false), "use_rope (true)");
  const RopeScalingConfig& scaling = model.rope_scaling;
  const RopeType type = scaling.type.value_or(RopeType::none);
  refuse("rope_scaling", scaling.factor != 1.0, named("factor", number(scaling.factor)));
  refuse("rope_scaling", type != RopeType::none, named("type", std::string(word_of(type))));
}

void ignore_rope(const ModelConfig& model, Check& check) {
  const auto idle = idle_in(check, "model.", "use_rope is false");
  const ModelConfig usual;
  idle("rotary_base", model.rotary_base != usual.rotary_base);
  idle("rotary_percent", model.rotary_percent != usual.rotary_percent);
  idle("rotary_interleaved", model.rotary_interleaved);
  idle("rope_scaling", model.rope_scaling != RopeScalingConfig{});
}

/// The types that read a key of rope_scaling, and whether its value differs from the default.
struct RopeKey {
  const char* key;
  bool differs;
  std::initializer_list<RopeType> readers;
};

void check_rope_readers(const RopeScalingConfig& scaling, RopeType type, Check& check) {
  using enum RopeType;
  const RopeScalingConfig usual;
  const std::initializer_list<RopeKey> keys{
      {"factor", scaling.factor != usual.factor, {linear, llama3, yarn}},
      {"low_freq_factor", scaling.low_freq_factor != usual.low_freq_factor, {llama3}},
      {"high_freq_factor", scaling.high_freq_factor != usual.high_freq_factor, {llama3}},
      {"original_max_position_embeddings",
       scaling.original_max_position_embeddings != usual.original_max_position_embeddings,
       {llama3, yarn, longrope}},
      {"attention_factor",
       scaling.attention_factor.has_value(),
       {linear, llama3, yarn, longrope, alpha}},
      {"beta_fast", scaling.beta_fast != usual.beta_fast, {yarn}},
      {"beta_slow", scaling.beta_slow != usual.beta_slow, {yarn}},
      {"mscale", scaling.mscale != usual.mscale, {yarn}},
      {"mscale_all_dim", scaling.mscale_all_dim != usual.mscale_all_dim, {yarn}},
      {"truncate", scaling.truncate != usual.truncate, {yarn}},
      {"alpha", scaling.alpha != usual.alpha, {alpha}},
      {"short_factor", scaling.short_factor.has_value(), {longrope}},
      {"long_factor", scaling.long_factor.has_value(), {longrope}}};
  const std::string reason = scaling.type ? "rope_scaling.type is " + std::string(word_of(type))
                                          : "rope_scaling.factor is 1";
  for (const RopeKey& one : keys) {
    const bool read = std::ranges::find(one.readers, type) != one.readers.end();
    if (!read) check.no_effect(rope_path(one.key), one.differs, reason);
  }
}

/// Checks that the lists of longrope have one number for each pair.
void check_pair_factors(const RopeScalingConfig& scaling, std::int64_t pairs, Check& check) {
  const auto has_pairs = [&](const char* key, const std::optional<NumberList>& list) {
    const std::int64_t given = list ? std::ssize(*list) : 0;
    if (given == pairs || !check.clean({rope_path(key)})) return;
    check.error("rope-pair-factors", rope_path(key),
                formatted("{} has {} numbers, but type longrope needs one for each of the {} pairs "
                          "that RoPE turns in a head",
                          key, given, pairs),
                formatted("give {} {} numbers", key, pairs));
  };
  has_pairs("short_factor", scaling.short_factor);
  has_pairs("long_factor", scaling.long_factor);
}

/// `pairs`: number of pairs in a head that RoPE rotates, or 0 if unknown.
void check_rope_scaling(const RopeScalingConfig& scaling, RopeType type, std::int64_t pairs,
                        Check& check) {
  const auto above_zero = [&](const char* key, double value) {
    check.rule(rope_path(key), value > 0, value, "above 0");
  };
  check.rule(rope_path("factor"), scaling.factor >= 1, scaling.factor, "at least 1");
  check.range(rope_path("original_max_position_embeddings"),
              scaling.original_max_position_embeddings, 1, max_tokens);
  above_zero("low_freq_factor", scaling.low_freq_factor);
  above_zero("attention_factor", scaling.attention_factor.value_or(1));
  above_zero("beta_fast", scaling.beta_fast);
  above_zero("beta_slow", scaling.beta_slow);
  above_zero("alpha", scaling.alpha);
  const auto rising = [&](const char* low, double least, const char* high, double most,
                          const char* usual) {
    if (!check.clean({rope_path(low), rope_path(high)}) || least < most) return;
    check.error(
        "rope-scaling", rope_path(high),
        formatted("{} must be below {}", named(low, number(least)), named(high, number(most))),
        usual);
  };
  rising("low_freq_factor", scaling.low_freq_factor, "high_freq_factor", scaling.high_freq_factor,
         "Llama 3 uses 1.0 and 4.0");
  rising("beta_slow", scaling.beta_slow, "beta_fast", scaling.beta_fast, "YaRN uses 1.0 and 32.0");
  if (type == RopeType::longrope && pairs > 0) check_pair_factors(scaling, pairs, check);
  check_rope_readers(scaling, type, check);
}

void check_rope(const ModelConfig& model, Check& check) {
  const ModelShape shape = model_shape(model);
  if (shape.learned_positions) return refuse_rope(model, check);
  if (!model.use_rope.value_or(true)) return ignore_rope(model, check);
  check.rule("model.rotary_base", model.rotary_base > 1, model.rotary_base, "above 1");
  const double percent = model.rotary_percent;
  check.rule("model.rotary_percent", percent > 0 && percent <= 1, percent, "above 0 and at most 1");
  const bool sizes = check.clean({"model.rotary_percent", "model.hidden_size", "model.kv_channels",
                                  "model.num_attention_heads"});
  const RopeForm rope = shape.ropes.empty() ? RopeForm{} : shape.ropes.front();
  const std::int64_t size = rope.size;
  if (sizes && percent < 1 && (size < 2 || size % 2 != 0)) {
    check.error("rotary-size", "model.rotary_percent",
                formatted("RoPE would turn {} of {} features of each head ({}), but it turns "
                          "pairs: the number must be even and at least 2",
                          size, shape.head_dim, named("rotary_percent", number(percent))),
                "set rotary_percent to 1, or kv_channels to a multiple of 4");
  }
  const bool known = sizes && check.clean({"model.rotary_percent"});
  check_rope_scaling(model.rope_scaling, rope.type, known ? size / 2 : -1, check);
}

void check_attention_form(const ModelConfig& model, Check& check) {
  const auto above_zero = [&](const char* path, std::optional<double> value) {
    check.rule(path, value.value_or(1) > 0, value.value_or(1), "above 0");
  };
  above_zero("model.softmax_scale", model.softmax_scale);
  above_zero("model.attn_logit_softcapping", model.attn_logit_softcapping);
  above_zero("model.final_logit_softcapping", model.final_logit_softcapping);
  const char* window = "model.sliding_window";
  const char* chunk = "model.attention_chunk_size";
  check.range(window, model.sliding_window.value_or(1), 1, max_tokens);
  check.range(chunk, model.attention_chunk_size.value_or(1), 1, max_tokens);
  if (!model.sliding_window || !model.attention_chunk_size || !check.clean({window, chunk})) return;
  check.error("window-and-chunk", chunk,
              formatted("{} and {} are both given: a query sees a window or its chunk",
                        named("attention_chunk_size", *model.attention_chunk_size),
                        named("sliding_window", *model.sliding_window)),
              "remove one of them");
}

void check_temperature(const ModelConfig& model, Check& check) {
  const TemperatureConfig& given = model.attention_temperature;
  const std::string path = "model.attention_temperature.";
  check.rule(path + "beta", given.beta >= 0, given.beta, "at least 0");
  check.rule(path + "floor", given.floor >= 1, given.floor, "at least 1");
  check.rule(path + "add", given.add >= 0 && given.add <= 1, given.add, "in [0, 1]");
  if (given.beta > 0) return;
  const TemperatureConfig usual;
  const char* reason = "attention_temperature.beta is 0";
  check.no_effect(path + "floor", given.floor != usual.floor, reason);
  check.no_effect(path + "add", given.add != usual.add, reason);
}

void check_norms(const ModelConfig& model, Check& check) {
  const char* reason = "qk_layernorm is false";
  const bool some = std::ranges::any_of(
      model.layers, [](const LayerEntry& entry) { return entry.qk_layernorm.value_or(false); });
  if (model.qk_layernorm || some) return;
  check.no_effect("model.qk_layernorm_form", model.qk_layernorm_form != QkNormForm::head, reason);
  check.no_effect("model.qk_layernorm_after_rope", model.qk_layernorm_after_rope.has_value(),
                  reason);
}

void check_feed_forward_form(const ModelConfig& model, Check& check) {
  const double limit = model.activation_func_clamp_value.value_or(1);
  const double offset = model.glu_linear_offset;
  check.rule("model.activation_func_clamp_value", limit > 0, limit, "above 0");
  check.rule("model.glu_linear_offset", offset >= -1000 && offset <= 1000, offset,
             "in [-1000, 1000]");
  if (model_shape(model).gated_mlp) return;
  const char* reason = "gated_linear_unit is false";
  check.no_effect("model.glu_linear_offset", offset != 0, reason);
  check.no_effect("model.activation_func_clamp_value",
                  model.activation_func_clamp_value.has_value(), reason);
}

void check_multipliers(const ModelConfig& model, Check& check) {
  const auto above_zero = [&](const char* path, double value) {
    check.rule(path, value > 0, value, "above 0");
  };
  above_zero("model.embedding_multiplier", model.embedding_multiplier);
  above_zero("model.residual_multiplier", model.residual_multiplier);
  above_zero("model.logit_scale", model.logit_scale);
}

}  // namespace

void check_forms(const ModelConfig& model, Check& check) {
  check_rope(model, check);
  check_attention_form(model, check);
  check_temperature(model, check);
  check_norms(model, check);
  check_feed_forward_form(model, check);
  check_multipliers(model, check);
}

}  // namespace trainctl
