// The parts of a config.json that differ between layers: experts, windows, and whether and how RoPE
// is applied.

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/text.h"
#include "config/schema/values.h"
#include "config/upstream/hugging_face.h"
#include "config/upstream/hugging_face_reader.h"

namespace trainctl {
namespace {

bool differ(const std::vector<LayerKeys>& layers, const auto LayerKeys::*part) {
  return std::ranges::any_of(
      layers, [&](const LayerKeys& one) { return one.*part != layers.front().*part; });
}

/// The number of a layer's base among the bases that differ from the model's, from 1; else 0.
std::size_t number_of_base(const LayerKeys& one, const std::vector<LayerKeys>& layers) {
  std::vector<double> bases;
  for (const LayerKeys& layer : layers) {
    if (layer.base > 0 && std::ranges::find(bases, layer.base) == bases.end()) {
      bases.push_back(layer.base);
    }
    if (layer == one) break;
  }
  const auto found = std::ranges::find(bases, one.base);
  return found == bases.end() ? 0 : static_cast<std::size_t>(found - bases.begin()) + 1;
}

/// The name of a kind of layers, made of the settings that differ: "sliding", "no_rope".
std::string name_of(const LayerKeys& one, const std::vector<LayerKeys>& layers) {
  std::string name;
  if (differ(layers, &LayerKeys::window) || differ(layers, &LayerKeys::local)) {
    name = one.window > 0 || one.local ? "sliding" : "full";
  }
  const auto add = [&](const std::string& part) { name += (name.empty() ? "" : "_") + part; };
  if (differ(layers, &LayerKeys::turns)) add(one.turns ? "rope" : "no_rope");
  if (const auto base = number_of_base(one, layers)) add(formatted("base{}", base));
  if (differ(layers, &LayerKeys::routed)) add(one.routed ? "experts" : "dense");
  return name.empty() ? "all" : name;
}

}  // namespace

bool have_kinds(const std::vector<LayerKeys>& layers) {
  return std::ranges::any_of(layers, [&](const LayerKeys& one) { return one != layers.front(); });
}

std::string write_kinds(const std::vector<LayerKeys>& layers, const std::string& local_rope) {
  std::vector<LayerKeys> kinds;
  std::string text;
  for (const LayerKeys& one : layers) {
    if (std::ranges::find(kinds, one) != kinds.end()) continue;
    kinds.push_back(one);
    text += (text.empty() ? "{name: " : ", {name: ") + name_of(one, layers);
    if (!one.turns) text += ", use_rope: false";
    if (one.window > 0) text += formatted(", sliding_window: {}", one.window);
    if (one.local) text += local_rope;
    if (one.base > 0) text += ", rotary_base: " + write_value(one.base);
    if (differ(layers, &LayerKeys::routed)) {
      text += formatted(", experts: {}", one.routed ? "true" : "false");
    }
    text += "}";
  }
  return "[" + text + "]";
}

std::string write_pattern(const std::vector<LayerKeys>& layers) {
  std::string text;
  for (auto first = layers.begin(); first != layers.end();) {
    const auto end =
        std::find_if(first, layers.end(), [&](const LayerKeys& one) { return one != *first; });
    text += (text.empty() ? "" : ", ") + name_of(*first, layers);
    if (end - first > 1) text += formatted("*{}", end - first);
    first = end;
  }
  return text;
}

namespace {

constexpr std::int64_t max_layers = 10'000;  // largest accepted num_layers
constexpr std::int64_t widest_experts = 1 << 22;

/// The number of experts, given by either key; if both are given, they must agree.
std::int64_t count_experts(HuggingFaceReader& reader, std::optional<std::int64_t> missing) {
  const char* old_key = "num_experts";
  const char* key = reader.has("n_routed_experts")    ? "n_routed_experts"
                    : reader.has("num_local_experts") ? "num_local_experts"
                    : reader.has(old_key) || missing  ? old_key
                                                      : "n_routed_experts";
  const std::int64_t count = reader.size_or(key, missing);
  if (reader.at(key) == 1) reader.problem(key, "a layer of experts has at least 2 here");
  if (reader.has(old_key) && reader.at(old_key) != reader.at(key)) {
    reader.problem(old_key, formatted("{} says otherwise", key));
  }
  return count;
}

/// Writes first_dense_layers and layer_frequency if they describe the `wanted` layers (not empty).
bool give_layers(HuggingFaceReader& reader, const std::set<std::int64_t>& wanted,
                 std::int64_t layers) {
  const std::int64_t first = *wanted.begin();
  const std::int64_t second = wanted.size() > 1 ? *std::next(wanted.begin()) : first;
  for (const std::int64_t every : {std::int64_t{1}, second - first, first, layers}) {
    std::set<std::int64_t> found;
    for (std::int64_t i = first; every > 0 && i < layers; ++i) {
      if (i % every == 0) found.insert(i);
    }
    if (found != wanted) continue;
    reader.give_moe("first_dense_layers", first);
    reader.give_moe("layer_frequency", every);
    return true;
  }
  return false;
}

/// Layer i has experts if decoder_sparse_step divides i + 1, unless mlp_only_layers names it.
/// Returns these layers if the keys of section moe cannot express them.
std::set<std::int64_t> read_qwen_layers(HuggingFaceReader& reader, std::int64_t layers) {
  if (layers > max_layers) return {};  // num_layers is refused elsewhere
  const std::int64_t step = reader.size("decoder_sparse_step", 1);
  const HuggingFaceJson& plain = reader.at("mlp_only_layers");
  if (!plain.is_null() && !plain.is_array()) {
    reader.problem("mlp_only_layers", "expected a list of layers");
    return {};
  }
  std::set<std::int64_t> wanted;
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool is_plain = std::find(plain.begin(), plain.end(), i) != plain.end();
    if (!is_plain && (i + 1) % step == 0) wanted.insert(i);
  }
  if (wanted.empty()) reader.problem("mlp_only_layers", "no layer has experts");
  if (wanted.empty() || give_layers(reader, wanted, layers)) return {};
  return wanted;
}

/// Text before a rule about a key whose default applies.
std::string said_by_default(const HuggingFaceReader& reader, const char* key, const char* value) {
  return reader.has(key) ? "" : formatted("that means {}; ", value);
}

/// Reads DeepSeek-V3's router: sigmoid scores, with a bias for the choice, and groups.
void read_dots_router(HuggingFaceReader& reader, std::int64_t topk) {
  const std::int64_t groups = reader.size("n_group", 1);
  const std::int64_t chosen = reader.size("topk_group", 1);
  const bool limited = chosen < groups;
  reader.give_moe("router_enable_expert_bias", true);
  reader.give_moe("router_num_groups", limited ? groups : 1);
  reader.give_moe("router_group_topk", limited ? chosen : 1);
  if (!reader.has("num_experts_per_tok")) return;  // reported elsewhere
  if (limited && topk != 2 * chosen) {
    reader.problem(
        "topk_group",
        said_by_default(reader, "topk_group", "1") +
            "groups are compared there by their two best scores, here by num_experts_per_tok "
            "/ topk_group");
  }
  if (reader.flag("norm_topk_prob", false) != (topk > 1)) {
    reader.problem(
        "norm_topk_prob",
        said_by_default(reader, "norm_topk_prob", "false") +
            "with sigmoid scores, weights of several chosen experts add up to 1 here before "
            "they are scaled, and that of one is its score");
  }
}

void read_dots(HuggingFaceReader& reader, const HuggingFaceFamily& defaults, std::int64_t topk) {
  read_dots_router(reader, topk);
  const std::int64_t width =
      reader.size_or("moe_intermediate_size", defaults.moe_intermediate_size);
  const std::int64_t count = reader.size("n_shared_experts");
  if (count > widest_experts / width)
    reader.problem("n_shared_experts", "the shared experts are too wide");
  reader.give_moe("shared_expert_intermediate_size",
                  std::min(count, widest_experts) * std::min(width, widest_experts));
  const bool is_zero = reader.at("first_k_dense_replace") == 0;
  reader.give_moe("first_dense_layers", is_zero ? 0 : reader.size("first_k_dense_replace", 0));
  reader.give_moe("layer_frequency", std::int64_t{1});
}

void read_mixtral(HuggingFaceReader& reader) {
  reader.give_moe("first_dense_layers", std::int64_t{0});
  reader.give_moe("layer_frequency", std::int64_t{1});
  reader.only("router_jitter_noise", {0.0}, "noise on the router's input is not built");
}

}  // namespace

std::set<std::int64_t> read_hugging_face_experts(HuggingFaceReader& reader,
                                                 const HuggingFaceFamily& defaults,
                                                 std::int64_t layers) {
  const std::string_view type = defaults.type;
  const bool is_mixtral = type == "mixtral";
  const bool is_dots = type == "dots1";
  reader.give_moe("num_experts", count_experts(reader, defaults.experts));
  const std::int64_t topk = reader.size_or("num_experts_per_tok", defaults.num_experts_per_tok);
  reader.give_moe("router_topk", topk);
  reader.give_moe("ffn_hidden_size",
                  is_mixtral
                      ? reader.size_or("intermediate_size", defaults.sizes.intermediate_size)
                      : reader.size_or("moe_intermediate_size", defaults.moe_intermediate_size));
  reader.give_moe("router_score_function", std::string(is_dots ? "sigmoid" : "softmax"));
  reader.give_moe("router_topk_scaling_factor",
                  is_dots ? reader.number("routed_scaling_factor", 1.0) : 1.0);
  if (is_dots) {
    read_dots(reader, defaults, topk);
    return {};
  }
  reader.give_moe("router_pre_softmax", !is_mixtral && !reader.flag("norm_topk_prob", false));
  if (is_mixtral) {
    read_mixtral(reader);
    return {};
  }
  if (type == "qwen2_moe") {
    reader.give_moe("shared_expert_intermediate_size",
                    reader.size_or("shared_expert_intermediate_size",
                                   defaults.shared_expert_intermediate_size));
    reader.give_moe("shared_expert_gate", true);
  }
  return read_qwen_layers(reader, layers);
}

// Which layers of a config.json have a window and which RoPE, as kinds of model.layers.
namespace {

constexpr std::int64_t longest_model = 10'000;  // largest accepted num_layers

/// For each layer, whether layer_types gives it a window; empty if the list is missing or wrong.
std::vector<bool> listed_windows(HuggingFaceReader& reader, std::int64_t layers) {
  std::vector<bool> slides;
  const HuggingFaceJson& words = reader.at("layer_types");
  if (words.is_null()) return slides;
  if (!words.is_array() || std::ssize(words) != layers) {
    reader.problem("layer_types", formatted("expected a list of {} words, one a layer", layers));
    return slides;
  }
  for (const HuggingFaceJson& word : words) {
    if (word != "full_attention" && word != "sliding_attention") {
      reader.problem("layer_types", word,
                     "attention is built as full_attention and sliding_attention");
      return {};
    }
    slides.push_back(word == "sliding_attention");
  }
  return slides;
}

/// The number of keys that a query sees in layers with a window; 0 if there is no window, or one
/// that covers all positions.
std::int64_t window_of(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                       std::int64_t positions) {
  const HuggingFaceWindow rule = family.window;
  if (rule == "none") {
    reader.only("use_sliding_window", {false},
                formatted("model_type {} has no window", family.type));
    return 0;
  }
  if (asks_for_window(rule) && !reader.flag("use_sliding_window", false)) return 0;
  const bool missing_is_none = rule == "all_if_given" || rule == "without_rope";
  if (!reader.has("sliding_window") && missing_is_none) return 0;
  if (reader.has("sliding_window") && reader.at("sliding_window").is_null()) return 0;
  const std::int64_t window = reader.size("sliding_window", family.sliding_window);
  return window < positions ? window : 0;
}

/// The distance n of layers without a window. As a text, the pattern has a letter for each of n
/// layers and ends with the one without a window: "LLLG".
std::int64_t window_pattern(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  const char* key =
      reader.has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
  const HuggingFaceJson& given = reader.at(key);
  if (!given.is_string()) return reader.size(key, family.window_pattern);
  const auto text = given.get<std::string>();
  const bool plain = !text.empty() && text.find('G') == text.size() - 1 &&
                     text.find_first_not_of('L') == text.size() - 1;
  if (!plain) reader.problem(key, "expected L for each layer with a window and one G at the end");
  return plain ? std::ssize(text) : family.window_pattern;
}

/// For each layer, whether it has the window.
std::vector<bool> sliding_layers(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                                 const std::vector<bool>& turns, std::int64_t positions) {
  const auto layers = std::ssize(turns);
  const std::vector<bool> listed = listed_windows(reader, layers);
  const HuggingFaceJson& window = reader.at("sliding_window");
  const bool hides = window.is_number() && window < positions;
  if (family.window == "none" && hides && std::ranges::find(listed, true) != listed.end()) {
    reader.problem("layer_types", "sliding_attention",
                   formatted("model_type {} has no window", family.type));
  }
  if (slides_everywhere(family.window)) return std::vector<bool>(turns.size(), true);
  if (family.window == "none") return std::vector<bool>(turns.size(), false);
  if (!listed.empty()) return listed;
  std::vector<bool> slides;
  if (slides_by_pattern(family.window)) {
    const std::int64_t every = window_pattern(reader, family);
    const std::int64_t first = family.window == "but_each_nth" ? 1 : 0;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      slides.push_back((layer + first) % every != 0);
    }
    return slides;
  }
  const std::int64_t first = family.window == "without_rope"
                                 ? 0
                                 : reader.size("max_window_layers", family.max_window_layers);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool turned = at(turns, layer);
    slides.push_back(family.window == "without_rope"    ? !turned
                     : family.window == "if_asked_even" ? layer % 2 == 0 && layer < first
                                                        : layer >= first);
  }
  return slides;
}

/// For each layer, whether it has RoPE: by a 1 in the list no_rope_layers, else all but every n-th
/// layer, or the layers with a base in the list of bases.
std::vector<bool> turning_layers(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                                 std::int64_t layers, const std::vector<double>& thetas) {
  std::vector<bool> turns(static_cast<std::size_t>(layers), true);
  for (std::size_t layer = 0; layer < thetas.size(); ++layer) turns[layer] = thetas[layer] > 0;
  if (family.no_rope_layer_interval == 0) return turns;
  const HuggingFaceJson& list = reader.at("no_rope_layers");
  if (list.is_null()) {
    const std::int64_t every = reader.size("no_rope_layer_interval", family.no_rope_layer_interval);
    for (std::int64_t layer = every; layer <= layers; layer += every) {
      at(turns, layer - 1) = false;
    }
    return turns;
  }
  const auto is_mark = [](const HuggingFaceJson& one) { return one == 0 || one == 1; };
  if (!list.is_array() || std::ssize(list) != layers || !std::ranges::all_of(list, is_mark)) {
    reader.problem(
        "no_rope_layers",
        formatted("expected a list of {} numbers, 1 for a layer with RoPE and 0 for one without",
                  layers));
    return turns;
  }
  for (std::size_t layer = 0; layer < turns.size(); ++layer) turns[layer] = list[layer] == 1;
  return turns;
}

}  // namespace

void read_hugging_face_layers(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                              std::int64_t layers, std::int64_t positions,
                              const HuggingFaceRopes& ropes, const std::set<std::int64_t>& routed) {
  if (layers > longest_model) return;  // num_layers is refused elsewhere
  const std::vector<bool> turns = turning_layers(reader, family, layers, ropes.thetas);
  const std::vector<bool> slides = sliding_layers(reader, family, turns, positions);
  const std::int64_t window = window_of(reader, family, positions);
  std::vector<LayerKeys> keys;
  const bool has_window = !reader.has("sliding_window") || !reader.at("sliding_window").is_null();
  for (std::size_t layer = 0; layer < turns.size(); ++layer) {
    const bool turned = turns[layer] && (!family.turns_with_window || !has_window || slides[layer]);
    const double theta = ropes.thetas.empty() ? 0 : ropes.thetas[layer];
    keys.push_back({.turns = turned,
                    .window = slides[layer] ? window : 0,
                    .local = !ropes.local.empty() && has_window && slides[layer],
                    .base = theta == ropes.theta ? 0 : theta,
                    .routed = routed.contains(static_cast<std::int64_t>(layer))});
  }
  if (have_kinds(keys) || keys.front().local) {
    reader.give_text("layers", write_kinds(keys, ropes.local));
    return reader.give("layer_pattern", write_pattern(keys));
  }
  if (!keys.front().turns) reader.give("use_rope", false);
  if (keys.front().window > 0) reader.give("sliding_window", keys.front().window);
}

// RoPE in a config.json, in both spellings: rope_theta with rope_scaling, and rope_parameters.
namespace {

/// A value that two keys may give, with the key that gave it.
struct Twice {
  std::string key;
  HuggingFaceJson value;
};

/// A RoPE setting in either spelling; if both are given, they must agree.
Twice rope_setting(HuggingFaceReader& reader, const std::string& name, const std::string& old_key,
                   const HuggingFaceJson& old_value) {
  const HuggingFaceJson& parameters = reader.at("rope_parameters");
  const bool is_new = parameters.is_object() && parameters.contains(name);
  if (!is_new) return {old_key, old_value};
  const std::string key = "rope_parameters." + name;
  if (!old_value.is_null() && old_value != parameters[name]) {
    reader.problem(key, parameters[name], old_key + " says otherwise: " + shown(old_value.dump()));
  }
  return {key, parameters[name]};
}

/// Reads the keys of rope_scaling one after the other.
class ScalingReader {
 public:
  ScalingReader(HuggingFaceReader& reader, HuggingFaceJson scaling)
      : reader_(reader), scaling_(std::move(scaling)) {}

  Twice find(const std::string& name) {
    const HuggingFaceJson old = scaling_.contains(name) ? scaling_[name] : HuggingFaceJson();
    return rope_setting(reader_, name, "rope_scaling." + name, old);
  }
  /// Adds a required number.
  void number(const char* name) {
    const Twice given = find(name);
    if (!given.value.is_number())
      return reader_.problem(given.key, given.value, "expected a number");
    add(name, write_value(given.value.get<double>()));
  }
  /// Adds a number that may be missing or null.
  void number_if_given(const char* name) {
    if (!find(name).value.is_null()) number(name);
  }
  void flag_if_given(const char* name) {
    const Twice given = find(name);
    if (given.value.is_null()) return;
    if (!given.value.is_boolean()) {
      return reader_.problem(given.key, given.value, "expected true or false");
    }
    add(name, given.value.get<bool>() ? "true" : "false");
  }
  void numbers(const char* name) {
    const Twice given = find(name);
    std::string text;
    bool right = given.value.is_array() && !given.value.empty();
    for (const HuggingFaceJson& one : given.value) {
      right = right && one.is_number();
      if (right) text += (text.empty() ? "" : ", ") + write_value(one.get<double>());
    }
    if (!right) return reader_.problem(given.key, given.value, "expected a list of numbers");
    add(name, "[" + text + "]");
  }
  /// Adds the original context length as `ours`: from the top level, the settings of RoPE, or else
  /// the number of positions.
  void original(std::int64_t positions, const char* ours = "original_max_position_embeddings") {
    const char* name = "original_max_position_embeddings";
    const HuggingFaceJson& top = reader_.at(name);
    HuggingFaceJson value = top.is_null() ? find(name).value : top;
    if (value.is_null()) value = static_cast<std::uint64_t>(positions);
    if (!value.is_number_unsigned()) return reader_.problem(name, value, "expected a whole number");
    add(ours, std::to_string(value.get<std::uint64_t>()));
  }
  void add(const std::string& name, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + name + ": " + value;
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  HuggingFaceReader& reader_;
  HuggingFaceJson scaling_;
  std::string text_;
};

/// The type of RoPE: key `rope_type`, which older files call `type`.
HuggingFaceJson old_rope_type(const HuggingFaceJson& scaling) {
  for (const char* name : {"rope_type", "type"}) {
    if (scaling.contains(name)) return scaling[name];
  }
  return {};
}

/// Adds the keys of a type of RoPE; returns false if it is not built.
bool read_type(ScalingReader& scaling, const HuggingFaceJson& type, std::int64_t positions) {
  if (type == "llama3") {
    for (const char* name : {"factor", "low_freq_factor", "high_freq_factor"}) scaling.number(name);
    scaling.original(positions);
  } else if (type == "linear") {
    scaling.add("type", "linear");
    scaling.number("factor");
  } else if (type == "yarn") {
    scaling.add("type", "yarn");
    scaling.number("factor");
    for (const char* name :
         {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
      scaling.number_if_given(name);
    }
    scaling.flag_if_given("truncate");
    scaling.original(positions);
  } else if (type == "longrope" || type == "su") {
    scaling.add("type", "longrope");
    scaling.numbers("short_factor");
    scaling.numbers("long_factor");
    scaling.number_if_given("attention_factor");
    scaling.original(positions);
  } else if (type == "dynamic") {
    // No effect up to max_position_embeddings, and longer sequences are refused.
    scaling.add("type", scaling.find("alpha").value.is_null() ? "none" : "alpha");
    scaling.number_if_given("alpha");
  } else {
    return false;
  }
  return true;
}

/// Keys of RoPE that may differ between layers with and without a window, as our values.
struct RopeKeys {
  std::string base, scaling;
  bool operator==(const RopeKeys&) const = default;
};

/// The RoPE settings in the older spelling; empty if there are none.
HuggingFaceJson older_settings(const HuggingFaceReader& reader) {
  const HuggingFaceJson& given = reader.at("rope_scaling");
  return given.is_object() ? given : HuggingFaceJson::object();
}

/// Reads these keys. `usual` is our value of rope_scaling if the file has no settings; "" for none.
RopeKeys read_keys(HuggingFaceReader& reader, double usual_theta, std::string_view usual,
                   std::int64_t positions) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const HuggingFaceJson& value = reader.at(key);
    if (!value.is_null() && !value.is_object()) {
      reader.problem(key, "expected an object or null");
      return {};
    }
  }
  const HuggingFaceJson scaling = older_settings(reader);
  const Twice theta = rope_setting(reader, "rope_theta", "rope_theta", reader.at("rope_theta"));
  RopeKeys keys;
  keys.base = write_value(reader.number(theta.key, theta.value, usual_theta));
  keys.scaling = "{factor: 1}";
  const Twice kind =
      rope_setting(reader, "rope_type", "rope_scaling.rope_type", old_rope_type(scaling));
  if (kind.value == "default") return keys;
  if (kind.value.is_null() && scaling.empty()) {
    if (!usual.empty()) keys.scaling = usual;
    return keys;
  }
  if (kind.value.is_null()) {
    reader.problem("rope_scaling", "it needs a rope_type");
    return keys;
  }
  ScalingReader parts(reader, scaling);
  if (read_type(parts, kind.value, positions)) {
    keys.scaling = parts.text();
  } else {
    reader.problem(kind.key, kind.value,
                   "RoPE is built as default, linear, dynamic, llama3, yarn and longrope");
  }
  return keys;
}

/// The file with the RoPE settings of one type of layer, full_attention or sliding_attention.
HuggingFaceJson for_layers(const HuggingFaceReader& reader, const HuggingFaceFamily& family,
                           const char* layers) {
  HuggingFaceJson root = reader.root();
  const HuggingFaceJson& parameters = reader.at("rope_parameters");
  if (parameters.is_object() && parameters.contains(layers)) {
    root["rope_parameters"] = parameters[layers];
    return root;
  }
  if (layers != std::string_view("sliding_attention")) return root;
  // Older files: a separate base for layers with a window, and scaling only for other layers.
  root.erase("rope_parameters");
  root.erase("rope_scaling");
  if (family.local_theta > 0) root.erase("rope_theta");
  if (reader.has("rope_local_base_freq")) root["rope_theta"] = reader.at("rope_local_base_freq");
  return root;
}

void read_turned_part(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  const Twice partial = rope_setting(reader, "partial_rotary_factor", "partial_rotary_factor",
                                     reader.at("partial_rotary_factor"));
  const double part = reader.number(partial.key, partial.value, family.partial_rotary_factor);
  if (part != 1 && !family.partial_rotary) {
    reader.problem(partial.key, partial.value, "RoPE turns whole heads in this family");
  } else if (part != 1) {
    reader.give("rotary_percent", part);
  }
  if (family.interleaved) reader.give("rotary_interleaved", true);
}

/// Reads the factor of queries, 1 + beta ln(1 + floor(position / original context)).
void read_temperature(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                      std::int64_t positions) {
  if (family.temperature.empty()) return;
  const HuggingFaceJson older = older_settings(reader);
  ScalingReader settings(reader, older);
  const Twice beta = settings.find("llama_4_scaling_beta");
  if (beta.value.is_null() && older.empty() && !reader.at("rope_parameters").is_object()) {
    return reader.give_text("attention_temperature", std::string(family.temperature));
  }
  if (!beta.value.is_number()) {
    return reader.problem(beta.key, beta.value, "expected a number, 0 for none");
  }
  if (beta.value == 0) return;
  settings.add("beta", write_value(beta.value.get<double>()));
  settings.original(positions, "floor");
  reader.give_text("attention_temperature", settings.text());
}

/// The bases in layer_rope_theta; empty if the file has none.
std::vector<double> listed_thetas(HuggingFaceReader& reader, std::int64_t layers) {
  const HuggingFaceJson& list = reader.at("layer_rope_theta");
  if (list.is_null()) return {};
  const auto is_base = [](const HuggingFaceJson& one) {
    return one.is_number() && one.get<double>() >= 0;
  };
  if (list.is_array() && std::ssize(list) == layers && std::ranges::all_of(list, is_base)) {
    return list.get<std::vector<double>>();
  }
  reader.problem(
      "layer_rope_theta",
      formatted("expected a list of {} numbers, the base of each layer and 0 of one without RoPE",
                layers));
  return {};
}

/// The bases of all layers; the first one above 0 is the model's.
HuggingFaceRopes ropes_of_layers(HuggingFaceReader& reader, std::int64_t layers) {
  HuggingFaceRopes ropes{.thetas = listed_thetas(reader, layers)};
  for (const double theta : ropes.thetas) {
    if (ropes.theta == 0) ropes.theta = theta;
  }
  return ropes;
}

}  // namespace

HuggingFaceRopes read_hugging_face_rope(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                                        std::int64_t layers, std::int64_t positions) {
  read_turned_part(reader, family);
  read_temperature(reader, family, positions);
  const HuggingFaceJson& parameters = reader.at("rope_parameters");
  const bool by_type = parameters.is_object() && (parameters.contains("full_attention") ||
                                                  parameters.contains("sliding_attention"));
  if (by_type && !family.scales_full_rope_only) {
    reader.problem("rope_parameters", "layers of this family have the same RoPE");
    return {};
  }
  const HuggingFaceJson full = for_layers(reader, family, "full_attention");
  HuggingFaceReader of_full = reader.with(full);
  const RopeKeys usual = read_keys(of_full, family.rope_theta, family.rope_scaling, positions);
  HuggingFaceRopes ropes;
  if (family.theta_of_each_layer) ropes = ropes_of_layers(reader, layers);
  reader.give_text("rotary_base", ropes.theta > 0 ? write_value(ropes.theta) : usual.base);
  reader.give_text("rope_scaling", usual.scaling);
  if (!family.scales_full_rope_only) return ropes;
  const HuggingFaceJson sliding = for_layers(reader, family, "sliding_attention");
  HuggingFaceReader of_sliding = reader.with(sliding);
  const RopeKeys local = read_keys(
      of_sliding, family.local_theta > 0 ? family.local_theta : family.rope_theta, "", positions);
  if (local != usual) {
    ropes.local = ", rotary_base: " + local.base + ", rope_scaling: " + local.scaling;
  }
  return ropes;
}

}  // namespace trainctl
