#include <algorithm>
#include <cctype>

#include "plan/rules/check.h"

namespace trainctl {

namespace {

// Far above any model, far below where a product of two of them leaves 64 bits.
constexpr std::int64_t largest_depth = 10'000;
constexpr std::int64_t most_width = std::int64_t{1} << 24;
constexpr std::int64_t most_heads = std::int64_t{1} << 16;
constexpr std::int64_t most_vocabulary = (std::int64_t{1} << 31) - 1;  // token ids are 32-bit
constexpr std::int64_t most_head_size = 256;  // the limit of the attention kernels

void check_ranges(const ModelConfig& model, Check& check) {
  check.range("model.num_layers", model.num_layers, 1, largest_depth);
  check.range("model.hidden_size", model.hidden_size, 1, most_width);
  check.range("model.num_attention_heads", model.num_attention_heads, 1, most_heads);
  check.range("model.seq_length", model.seq_length, 1, most_width);
  check.range("model.vocab_size", model.vocab_size, 1, most_vocabulary);
  check.range("model.ffn_hidden_size", model.ffn_hidden_size.value_or(1), 1, most_width);
  check.range("model.num_query_groups", model.num_query_groups.value_or(1), 1, most_heads);
  check.range("model.max_position_embeddings", model.max_position_embeddings.value_or(1), 1,
              most_width);
  check.range("model.make_vocab_size_divisible_by", model.make_vocab_size_divisible_by, 1,
              most_width);
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
    check.error("heads-divide", "model.num_attention_heads",
                indivisible(named("hidden_size", hidden), named("num_attention_heads", heads)),
                "set num_attention_heads to " + divisors_near(hidden, heads) + ", hidden_size to " +
                    multiples_near(heads, hidden) + ", or give the head size as kv_channels");
    return;
  }
  const std::int64_t size = model.kv_channels.value_or(hidden / heads);
  const std::string path = model.kv_channels ? "model.kv_channels" : "model.num_attention_heads";
  const std::string shown = model.kv_channels
                                ? named("kv_channels", size)
                                : "the head size (hidden_size " + std::to_string(hidden) +
                                      " / num_attention_heads " + std::to_string(heads) + " = " +
                                      std::to_string(size) + ")";
  const std::string help = "set kv_channels to 32, 64 or 128";
  if (size < 1) check.error("out-of-range", path, shown + " must be at least 1", help);
  if (size > most_head_size) {
    check.error("head-size-limit", path,
                shown + " must be at most " + std::to_string(most_head_size) +
                    ", the limit of the attention kernels",
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
              named("seq_length", model.seq_length) + " must be at most " +
                  named("max_position_embeddings", positions),
              "set seq_length to at most " + std::to_string(positions) +
                  ", or max_position_embeddings to at least " + std::to_string(model.seq_length));
}

void check_family(const ModelConfig& model, Check& check) {
  const ModelShape shape = model_shape(model);
  if (shape.norm_kind == NormKind::layer_norm && model.qk_layernorm) {
    check.error("qk-norm-family", "model.qk_layernorm",
                "qk_layernorm is true, but only the llama family has q/k norms",
                "set family to llama, or qk_layernorm to false");
  }
}

/// Keeps byte counts well within 64 bits; also catches a misplaced digit.
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
  check.error(
      "model-too-large", "model",
      "the model has about " + number(count) + " parameters, but the limit is " + number(most),
      "reduce num_layers, hidden_size or ffn_hidden_size");
}

/// What kinds of layers may differ in, of a model all of whose layers are alike.
void check_kind(const ModelConfig& model, Check& check) {
  check_ranges(model, check);
  check_groups(model, check);
  check_forms(model, check);
  check_family(model, check);
}

/// "model.rope_scaling.factor" as the entry says it; the whole list where it does not.
std::string path_in_entry(const std::string& path, std::size_t entry, const Check& check) {
  const std::string_view section = "model.";
  const std::string own =
      "model.layers." + std::to_string(entry) + "." + path.substr(section.size());
  return check.given(own) ? own : "model.layers";
}

/// The errors of a model all of whose layers are alike.
std::vector<Diagnostic> errors_of_kind(const ModelConfig& model) {
  const SourceMap nowhere;
  Diagnostics found;
  Check alone(nowhere, found);
  check_kind(model, alone);
  std::vector<Diagnostic> errors = found.list();
  std::erase_if(errors, [](const Diagnostic& one) { return one.severity != Severity::error; });
  return errors;
}

/// Each entry as a model of its own; what is wrong with all of them is not said again.
void check_entries(const ModelConfig& model, Check& check) {
  const std::vector<Diagnostic> of_all = errors_of_kind(model);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerEntry& entry = model.layers[i];
    for (const Diagnostic& one : errors_of_kind(config_of(model, entry))) {
      if (std::ranges::find(of_all, one.message, &Diagnostic::message) != of_all.end()) continue;
      check.error(one.code.c_str(), path_in_entry(one.path, i, check),
                  "in layers " + entry.name + ", " + one.message, one.help);
    }
  }
}

void check_names(const ModelConfig& model, Check& check) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const std::string& name = model.layers[i].name;
    const std::string path = "model.layers." + std::to_string(i) + ".name";
    const bool plain =
        std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    if (!plain) {
      check.error("layer-kinds", path, "a name has letters, digits and _, found \"" + name + "\"",
                  "write a name like local or full_1");
    }
    const auto same = std::ranges::find(model.layers, name, &LayerEntry::name);
    if (same == model.layers.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    check.error("layer-kinds", path, "two kinds of layers are named \"" + name + "\"",
                "give each kind once and its order as layer_pattern, or give them different names");
  }
}

/// `order` is read of the same model.
void check_pattern(const ModelConfig& model, const LayerOrder& order, Check& check) {
  const char* path = "model.layer_pattern";
  if (!model.layer_pattern) return;
  std::string names;
  for (const LayerEntry& entry : model.layers) names += (names.empty() ? "" : ", ") + entry.name;
  if (model.layers.empty()) {
    check.error("layer-pattern", path, "layer_pattern is given, but layers names no kinds",
                "give the kinds as layers: [{name: local}, {name: global}]");
  } else if (!order.error.empty()) {
    check.error("layer-pattern", path, order.error + " in \"" + *model.layer_pattern + "\"",
                "write names of layers (" + names + "), as in \"" + model.layers.front().name +
                    "*2, " + model.layers.back().name + "\"");
  }
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (model.layers[i].count == 1) continue;
    check.error("layer-pattern", "model.layers." + std::to_string(i) + ".count",
                named("count", model.layers[i].count) +
                    " and layer_pattern both say how many layers follow each other",
                "remove count, or layer_pattern");
  }
}

void check_layers(const ModelConfig& model, Check& check) {
  if (!check.clean({"model.layers", "model.num_layers"})) return;
  const LayerOrder order = layer_order(model);
  check_names(model, check);
  check_pattern(model, order, check);
  check_entries(model, check);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const bool used = std::ranges::find(order.entries, i) != order.entries.end();
    check.no_effect("model.layers." + std::to_string(i) + ".name", !used,
                    "none of the " + counted(model.num_layers, "layer") + " is of this kind");
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
                  "weights are 0 unless a run goes on",
                  "set perform_initialization to true, or give model.from");
  }
  check_magnitude(model, check);
}

}  // namespace trainctl
