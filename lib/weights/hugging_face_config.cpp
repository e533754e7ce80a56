#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "config/schema/words.h"
#include "config/upstream/hugging_face.h"
#include "plan/model/form.h"
#include "weights/hugging_face.h"

namespace trainctl {

namespace {

/// Whether RoPE frequencies of this type depend on the original context length.
bool has_original_context(RopeType type) {
  return type == RopeType::llama3 || type == RopeType::yarn || type == RopeType::longrope;
}

class Comparison {
 public:
  Comparison(const ModelShape& model, const HuggingFaceFamily& family)
      : model_(model), family_(family) {}

  std::vector<std::string> all() && {
    compare_biases();
    compare_mlp();
    compare_scales();
    compare_kinds();
    compare_attention();
    compare_windows();
    compare_rope();
    return std::move(found_);
  }

 private:
  void unless(bool fits, std::string what) {
    if (!fits) found_.push_back(std::move(what));
  }

  void compare_biases() {
    const HuggingFaceFamily::Biases& rule = family_.biases;
    const bool qkv = model_.qkv_bias;
    unless(qkv || !rule.always, "has biases of q, k and v");
    unless(!qkv || rule.always || !rule.key.empty(), "has no biases of q, k and v");
    const auto others = [&](bool has, bool by_key, bool by_own_key, const std::string& what) {
      if (by_key)
        return unless(has == qkv, "has biases of " + what + " as it has those of q, k and v");
      unless(!has || by_own_key, "has no biases of " + what);
    };
    others(model_.out_bias, rule.out, !rule.out_key.empty(), "the attention's output");
    others(model_.mlp_bias, rule.mlp, !rule.mlp_key.empty(), "the MLP");
  }

  void compare_mlp() {
    unless(model_.gated_mlp == family_.gated,
           family_.gated ? "has a gated MLP" : "has an MLP without a gate");
    unless(model_.gate_offset == 0 && model_.gate_limit == 0, "has a gated MLP without limits");
  }

  void compare_scales() {
    const bool free = family_.multipliers;
    unless(model_.zero_centered_norm == family_.zero_centered_norms,
           family_.zero_centered_norms ? "has norms around 0" : "has norms around 1");
    const double usual =
        family_.zero_centered_norms ? std::sqrt(static_cast<double>(model_.hidden)) : 1;
    unless(free || model_.embedding_multiplier == usual,
           family_.zero_centered_norms ? "multiplies the embedding by sqrt(hidden_size)"
                                       : "does not scale the embedding");
    unless(!family_.square_out || model_.q_features() == model_.hidden,
           "has heads of hidden_size / heads");
    unless(free || (model_.residual_multiplier == 1 && model_.logit_scale == 1),
           "does not scale branches and logits");
    unless(free || family_.query_pre_attn_scalar > 0 ||
               model_.softmax_scale == default_softmax_scale(model_.head_dim),
           "divides scores by sqrt(head size)");
    unless(family_.soft_caps || (model_.attention_cap == 0 && model_.logit_cap == 0),
           "has no soft caps");
  }

  void compare_kinds() {
    const LayerKind& first = model_.kind(0);
    const bool alike = std::ranges::all_of(model_.kinds, [&](const LayerKind& kind) {
      return kind.ffn == first.ffn && kind.kv_heads == first.kv_heads &&
             kind.qk_norm == first.qk_norm;
    });
    unless(alike, "has layers with MLPs of one width and equally many key heads");
    unless(first.qk_norm == family_.qk_norms,
           family_.qk_norms ? "has q/k norms" : "has no q/k norms");
    unless(!first.qk_norm || (model_.qk_norm_form == family_.qk_norm_form &&
                              model_.qk_norm_after_rope == family_.qk_norm_after_rope),
           "has other q/k norms");
    const bool bare = family_.optional_post_norms && model_.norm_placement == NormPlacement::pre;
    unless(bare || model_.norm_placement == family_.norm_placement,
           "has its norms in other places (norm_placement " +
               std::string(word_of(family_.norm_placement)) + ")");
  }

  void compare_attention() {
    unless(
        std::ranges::all_of(model_.kinds,
                            [&](const LayerKind& kind) { return kind.sinks == family_.sinks; }),
        family_.sinks ? "has a sink in the softmax of each head" : "has no sinks in its softmax");
    compare_temperature();
    unless(!model_.output_gate, "has no output gate of attention");
  }

  void compare_temperature() {
    if (model_.temperatures.empty()) return;
    if (family_.temperature.empty()) {
      return unless(false, "has queries that do not grow with their position");
    }
    const TemperatureConfig& form = model_.temperatures.front();
    const bool alike = std::ranges::all_of(
        model_.kinds, [](const LayerKind& kind) { return kind.temperature == 0; });
    unless(alike, "has queries that grow alike in all layers");
    unless(form.add == 0, "has queries that grow with their position, to which it adds nothing");
    const double floor =
        model_.ropes.empty() || !has_original_context(model_.ropes.front().type)
            ? std::floor(form.floor)
            : static_cast<double>(model_.ropes.front().scaling.original_max_position_embeddings);
    unless(form.floor == floor, "has queries whose floor is RoPE's original context");
  }

  void compare_windows() {
    const std::int64_t window = window_of(model_);
    const auto has = [&](const LayerKind& kind) { return kind.limits.window > 0; };
    bool one_window = true, chunks = false, as_rope = true;
    for (const LayerKind& kind : model_.kinds) {
      one_window = one_window && (!has(kind) || kind.limits.window == window);
      chunks = chunks || kind.limits.chunk > 0;
      as_rope = as_rope && has(kind) == (kind.rope < 0);
    }
    const bool all = std::ranges::all_of(model_.kinds, has);
    unless(!chunks, "has no chunks of attention");
    unless(one_window, "has windows of one length");
    if (window == 0) return;
    unless(family_.window != "none", "has no window");
    if (slides_everywhere(family_.window)) unless(all, "has its window in every layer");
    if (family_.window == "without_rope") {
      unless(as_rope, "has its window in the layers without RoPE");
    }
  }

  /// Whether all kinds with a window have one RoPE, and all kinds without a window have one.
  bool ropes_go_with_windows() const {
    return std::ranges::all_of(model_.kinds, [&](const LayerKind& one) {
      return std::ranges::all_of(model_.kinds, [&](const LayerKind& other) {
        const bool alike = (one.limits.window > 0) == (other.limits.window > 0);
        return !alike || one.rope == other.rope;
      });
    });
  }

  /// Whether all RoPE forms are equal apart from their bases.
  bool ropes_differ_in_bases() const {
    return std::ranges::all_of(model_.ropes, [&](RopeForm rope) {
      rope.base = model_.ropes.front().base;
      return rope == model_.ropes.front();
    });
  }

  void compare_rope() {
    const bool everywhere =
        std::ranges::all_of(model_.kinds, [](const LayerKind& kind) { return kind.rope >= 0; });
    const bool windows = window_of(model_) > 0;
    const bool as_window = std::ranges::all_of(model_.kinds, [](const LayerKind& kind) {
      return (kind.rope >= 0) == (kind.limits.window > 0);
    });
    if (family_.turns_with_window) {
      unless(windows ? as_window : everywhere, "has RoPE in the layers with a window");
    } else {
      unless(everywhere || family_.no_rope_layer_interval > 0 || family_.theta_of_each_layer,
             "has RoPE in every layer");
    }
    if (family_.theta_of_each_layer) {
      unless(ropes_differ_in_bases(), "has RoPE that differs between layers only in its base");
    } else if (family_.scales_full_rope_only) {
      unless(ropes_go_with_windows(), "has RoPE that differs between windows and full attention");
    } else {
      unless(model_.ropes.size() <= 1, "has the same RoPE in all layers");
    }
    if (model_.ropes.empty()) return;
    const RopeForm& rope = model_.ropes.front();
    unless(rope.interleaved == family_.interleaved,
           family_.interleaved ? "turns pairs of neighbours" : "turns pairs of a head's halves");
    unless(rope.size == model_.head_dim || family_.partial_rotary, "turns whole heads");
    unless(rope.type != RopeType::alpha || family_.long_qk_names, "has no RoPE of type alpha");
  }

  const ModelShape& model_;
  const HuggingFaceFamily& family_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> differences(const ModelShape& model, const HuggingFaceFamily& family) {
  return Comparison(model, family).all();
}

const HuggingFaceFamily& nearest_family(const ModelShape& model) {
  const HuggingFaceFamily* nearest = nullptr;
  std::size_t fewest = 0;
  for (const HuggingFaceFamily& family : hugging_face_families()) {
    if (family.has_experts) continue;
    const std::size_t count = differences(model, family).size();
    if (nearest != nullptr && count >= fewest) continue;
    nearest = &family;
    fewest = count;
  }
  return *nearest;
}

std::int64_t window_of(const ModelShape& model) {
  for (const LayerKind& kind : model.kinds) {
    if (kind.limits.window > 0) return kind.limits.window;
  }
  return 0;
}

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t max_json_bytes = 1 << 20;

constexpr const char* files_of_tokenizers[] = {"tokenizer.json",
                                               "tokenizer_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "vocab.json",
                                               "merges.txt",
                                               "tokenizer.model",
                                               "chat_template.jinja"};

Json read_json(const std::filesystem::path& file) {
  if (kind_of_file(file) == FileKind::none) return Json::object();
  const Json json = Json::parse(read_beginning(file, max_json_bytes), nullptr, false);
  return json.is_object() ? json : Json::object();
}

/// The configuration of the text part, where a model also has vision.
Json text_of(const Json& config) {
  const Json inside = config.value("text_config", Json());
  return inside.is_object() ? inside : config;
}

std::vector<std::int64_t> ids_of(const Json& json, const char* key) {
  std::vector<std::int64_t> ids;
  if (!json.contains(key)) return ids;
  const Json list = json[key].is_array() ? json[key] : Json::array({json[key]});
  for (const Json& id : list) {
    const bool fits = id.is_number_unsigned() && id.get<std::uint64_t>() < (std::uint64_t{1} << 31);
    if (fits) ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

Json one_or_list(const std::vector<std::int64_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? Json(ids.front()) : Json(ids);
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json gpt2_config(const ModelShape& model) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", model.vocab},
          {"n_positions", model.positions},
          {"n_embd", model.hidden},
          {"n_layer", model.layers},
          {"n_head", model.heads},
          {"n_inner", model.kind(0).ffn},
          {"activation_function", "gelu_new"},
          {"resid_pdrop", model.hidden_dropout},
          {"embd_pdrop", model.embedding_dropout},
          {"attn_pdrop", model.attention_dropout},
          {"layer_norm_epsilon", model.norm_epsilon}};
}

/// The parameters of RoPE; only the name of the type where frequencies are unchanged.
Json rope_parameters(const RopeForm& rope) {
  const RopeScalingConfig& scaling = rope.scaling;
  const std::int64_t original = scaling.original_max_position_embeddings;
  switch (rope.type) {
    case RopeType::llama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"original_max_position_embeddings", original}};
    case RopeType::linear: return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeType::yarn:
      return {{"rope_type", "yarn"},
              {"factor", scaling.factor},
              {"attention_factor", rope.amplitude},
              {"beta_fast", scaling.beta_fast},
              {"beta_slow", scaling.beta_slow},
              {"truncate", scaling.truncate},
              {"original_max_position_embeddings", original}};
    case RopeType::longrope:
      return {{"rope_type", "longrope"},
              {"short_factor", scaling.short_factor.value_or(NumberList{})},
              {"long_factor", scaling.long_factor.value_or(NumberList{})},
              {"attention_factor", rope.amplitude},
              {"original_max_position_embeddings", original}};
    case RopeType::alpha:
      return {{"rope_type", "dynamic"}, {"alpha", scaling.alpha}, {"factor", 1.0}};
    case RopeType::none: break;
  }
  return {{"rope_type", "default"}};
}

/// Adds RoPE of layers with a window, and of the other layers, as versions from 5 on read it.
void add_ropes_by_type(const ModelShape& model, Json& config) {
  Json all;
  for (const LayerKind& kind : model.kinds) {
    if (kind.rope < 0) continue;
    const RopeForm& rope = model.ropes[static_cast<std::size_t>(kind.rope)];
    Json& parameters = all[kind.limits.window > 0 ? "sliding_attention" : "full_attention"];
    parameters = rope_parameters(rope);
    parameters["rope_theta"] = rope.base;
  }
  for (const char* one : {"full_attention", "sliding_attention"}) {
    const char* other =
        one == std::string("full_attention") ? "sliding_attention" : "full_attention";
    if (!all.contains(one)) all[one] = all[other];
  }
  config["rope_parameters"] = all;
}

/// Adds the growth of queries beyond the original context, which some RoPE types already give.
void add_temperature(const ModelShape& model, Json& parameters) {
  const int number = model.kind(0).temperature;
  const TemperatureConfig form =
      number < 0 ? TemperatureConfig{} : model.temperatures[static_cast<std::size_t>(number)];
  const char* original = "original_max_position_embeddings";
  parameters["llama_4_scaling_beta"] = form.beta;
  if (parameters.contains(original)) return;
  parameters[original] = number < 0 ? model.positions : static_cast<std::int64_t>(form.floor);
}

/// Adds for each layer its base of RoPE, 0 without RoPE.
void add_thetas(const ModelShape& model, Json& config) {
  Json thetas = Json::array();
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const int rope = model.kind(i).rope;
    thetas.push_back(rope < 0 ? 0.0 : model.ropes[static_cast<std::size_t>(rope)].base);
  }
  config["layer_rope_theta"] = thetas;
}

/// Adds RoPE both as versions before 5 read it, and as later versions do.
void add_rope(const ModelShape& model, const HuggingFaceFamily& family, Json& config) {
  const RopeForm rope = model.ropes.empty() ? RopeForm{} : model.ropes.front();
  Json parameters = rope_parameters(rope);
  if (!family.temperature.empty()) add_temperature(model, parameters);
  if (family.theta_of_each_layer) add_thetas(model, config);
  config["rope_theta"] = rope.base;
  config["rope_scaling"] = parameters.size() > 1 ? parameters : Json(nullptr);
  if (parameters.contains("original_max_position_embeddings") && rope.type == RopeType::longrope) {
    config["original_max_position_embeddings"] = parameters["original_max_position_embeddings"];
  }
  if (family.partial_rotary && !model.ropes.empty()) {
    const double part = static_cast<double>(rope.size) / static_cast<double>(model.head_dim);
    config["partial_rotary_factor"] = parameters["partial_rotary_factor"] = part;
  }
  parameters["rope_theta"] = rope.base;
  config["rope_parameters"] = parameters;
}

void add_dots_experts(const ModelShape& model, Json& config) {
  const bool limited = model.group_topk < model.expert_groups;
  config["n_routed_experts"] = model.experts;
  config["n_shared_experts"] = model.shared_ffn / model.expert_ffn;
  config["n_group"] = limited ? model.expert_groups : 1;
  config["topk_group"] = limited ? model.group_topk : 1;
  config["first_k_dense_replace"] = dense_layers_first(model);
  config["routed_scaling_factor"] = model.topk_scaling;
  config["norm_topk_prob"] = model.weights != ExpertWeights::all;
}

void add_qwen_experts(const ModelShape& model, Json& config) {
  std::vector<std::int64_t> plain;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    if (!model.kind(i).experts) plain.push_back(i);
  }
  config["num_experts"] = model.experts;
  config["norm_topk_prob"] = model.weights != ExpertWeights::all;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = plain;
  if (model.shared_ffn > 0) config["shared_expert_intermediate_size"] = model.shared_ffn;
  if (model.qkv_bias) config["qkv_bias"] = true;
}

/// Adds the experts; Qwen has two names for their number, in old and in new versions.
void add_experts(const ModelShape& model, const std::string& type, Json& config) {
  config["num_experts_per_tok"] = model.topk;
  config["output_router_logits"] = false;
  const bool is_mixtral = type == "mixtral";
  config[is_mixtral ? "intermediate_size" : "moe_intermediate_size"] = model.expert_ffn;
  if (is_mixtral || type == "qwen3_moe") config["num_local_experts"] = model.experts;
  if (type == "dots1") return add_dots_experts(model, config);
  if (!is_mixtral) add_qwen_experts(model, config);
}

/// Adds for each layer 1 if it has RoPE, else 0.
void add_rope_layers(const ModelShape& model, Json& config) {
  std::vector<int> turns;
  for (std::int64_t i = 0; i < model.layers; ++i) turns.push_back(model.kind(i).rope >= 0 ? 1 : 0);
  config["no_rope_layers"] = turns;
}

void add_window(const ModelShape& model, const HuggingFaceFamily& family, Json& config) {
  if (family.window == "none") return;
  const std::int64_t window = window_of(model);
  if (asks_for_window(family.window)) config["use_sliding_window"] = window > 0;
  config["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
  if (slides_everywhere(family.window)) return;
  // Families with a pattern need the list even without windows, else their pattern applies.
  if (window == 0 && !slides_by_pattern(family.window)) return;
  Json words = Json::array();
  for (std::int64_t i = 0; i < model.layers; ++i) {
    words.push_back(model.kind(i).limits.window > 0 ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = words;
}

void add_biases(const ModelShape& model, const HuggingFaceFamily& family, Json& config) {
  const HuggingFaceFamily::Biases& rule = family.biases;
  const auto add = [&](std::string_view key, bool value) {
    if (!key.empty()) config[std::string(key)] = value;
  };
  if (!family.has_experts || rule.out) add(rule.key, model.qkv_bias);
  add(rule.out_key, model.out_bias);
  add(rule.mlp_key, model.mlp_bias);
}

const char* activation_word(Activation kind) {
  switch (kind) {
    case Activation::gelu: return "gelu_pytorch_tanh";
    case Activation::relu2: return "relu2";
    case Activation::quick_gelu: return "quick_gelu";
    case Activation::sigmoid: return "sigmoid";
    case Activation::silu: break;
  }
  return "silu";
}

void add_multipliers(const ModelShape& model, const HuggingFaceFamily& family, Json& config) {
  config["attention_multiplier"] = model.softmax_scale;
  config["embedding_multiplier"] = model.embedding_multiplier;
  config["residual_multiplier"] = model.residual_multiplier;
  config["logits_scaling"] = family.multiplies_logits ? model.logit_scale : 1 / model.logit_scale;
}

/// The nearest integer if only rounding separates the value from it: transformers 5 needs integers.
Json whole_if_near(double value) {
  const double whole = std::round(value);
  if (std::abs(value - whole) > 1e-9 * value) return value;
  return static_cast<std::int64_t>(whole);
}

Json cap_or_null(double cap) { return cap > 0 ? Json(cap) : Json(nullptr); }

Json llama_config(const ModelShape& model, const std::string& preferred) {
  const std::string type = hugging_face_type(model, preferred);
  const HuggingFaceFamily& family = *hugging_face_family(type);
  Json config{{"architectures", {std::string(family.class_name) + "ForCausalLM"}},
              {"model_type", type},
              {"vocab_size", model.vocab},
              {"hidden_size", model.hidden},
              {"intermediate_size", model.kind(0).ffn},
              {"num_hidden_layers", model.layers},
              {"num_attention_heads", model.heads},
              {"num_key_value_heads", model.kind(0).kv_heads},
              {"head_dim", model.head_dim},
              {"hidden_act", activation_word(model.activation)},
              {"max_position_embeddings", model.positions},
              {"rms_norm_eps", model.norm_epsilon},
              {"attention_dropout", model.attention_dropout}};
  add_biases(model, family, config);
  add_window(model, family, config);
  if (family.multipliers) add_multipliers(model, family, config);
  if (family.optional_post_norms) {
    config["use_post_norm"] = model.norm_placement != NormPlacement::pre;
  }
  if (family.query_pre_attn_scalar > 0) {
    config["query_pre_attn_scalar"] =
        whole_if_near(1 / (model.softmax_scale * model.softmax_scale));
  }
  if (family.soft_caps) {
    config["attn_logit_softcapping"] = cap_or_null(model.attention_cap);
    config["final_logit_softcapping"] = cap_or_null(model.logit_cap);
  }
  if (family.activation == "gelu_pytorch_tanh") {
    config["hidden_activation"] = activation_word(model.activation);
  }
  if (family.no_rope_layer_interval > 0) add_rope_layers(model, config);
  if (model.experts > 1) add_experts(model, type, config);
  if (family.scales_full_rope_only) {
    add_ropes_by_type(model, config);
  } else {
    add_rope(model, family, config);
  }
  return config;
}

}  // namespace

SpecialTokens read_special_tokens(const std::filesystem::path& directory) {
  const Json first = read_json(directory / "generation_config.json");
  const Json second = read_json(directory / "config.json");
  const auto find = [&](const char* key) {
    auto ids = ids_of(first, key);
    if (ids.empty()) ids = ids_of(second, key);
    return ids.empty() ? ids_of(text_of(second), key) : ids;
  };
  const auto one = [&](const char* key) -> std::optional<std::int64_t> {
    const auto ids = find(key);
    if (ids.empty()) return std::nullopt;
    return ids.front();
  };
  return {one("bos_token_id"), find("eos_token_id"), one("pad_token_id")};
}

std::string read_model_type(const std::filesystem::path& directory) {
  const Json config = text_of(read_json(directory / "config.json"));
  const Json type = config.value("model_type", Json());
  return type.is_string() ? type.get<std::string>() : "";
}

std::string hugging_face_config(const ModelShape& model, DType stored, const SpecialTokens& tokens,
                                const std::string& preferred) {
  Json config = model.family == "gpt2" ? gpt2_config(model) : llama_config(model, preferred);
  const char* dtype = stored == DType::bf16 ? "bfloat16" : "float32";
  config["initializer_range"] = model.init_std;
  config["tie_word_embeddings"] = model.tied;
  config["bos_token_id"] = or_null(tokens.begin);
  config["eos_token_id"] = one_or_list(tokens.end);
  config["pad_token_id"] = or_null(tokens.padding);
  config["torch_dtype"] = dtype;
  config["dtype"] = dtype;
  return json_text(config, JsonText::Style::indent_2) + "\n";
}

std::string generation_config(const SpecialTokens& tokens) {
  Json config = Json::object();
  if (tokens.begin) config["bos_token_id"] = *tokens.begin;
  if (!tokens.end.empty()) config["eos_token_id"] = one_or_list(tokens.end);
  if (tokens.padding) config["pad_token_id"] = *tokens.padding;
  return config.empty() ? "" : json_text(config, JsonText::Style::indent_2) + "\n";
}

std::span<const char* const> tokenizer_files() { return files_of_tokenizers; }

std::vector<std::string> copy_tokenizer(const std::filesystem::path& from,
                                        const std::filesystem::path& to, const Fence* fence) {
  std::vector<std::string> copied;
  for (const char* name : files_of_tokenizers) {
    if (kind_of_file(from / name) != FileKind::regular) continue;
    check_inside(from, from / name);
    copy_whole_file(from / name, to / name, fence);
    copied.emplace_back(name);
  }
  return copied;
}

}  // namespace trainctl
