#include "weights/hugging_face_config.h"

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "config/upstream/hugging_face.h"
#include "plan/model/form.h"
#include "weights/family_fit.h"
#include "weights/hugging_face_files.h"
#include "weights/hugging_face_names.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most_json_bytes = 1 << 20;

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
  const Json json = Json::parse(read_beginning(file, most_json_bytes), nullptr, false);
  return json.is_object() ? json : Json::object();
}

/// The part of the text, where a model also sees images.
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

/// The settings of rope_type; nothing but its name where frequencies stay as they are.
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

/// RoPE of layers with a window, and of the others, as versions from 5 on read it.
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

/// Queries that grow from the original context on, which RoPE of some types gives already.
void add_temperature(const ModelShape& model, Json& parameters) {
  const int number = model.kind(0).temperature;
  const TemperatureConfig form =
      number < 0 ? TemperatureConfig{} : model.temperatures[static_cast<std::size_t>(number)];
  const char* original = "original_max_position_embeddings";
  parameters["llama_4_scaling_beta"] = form.beta;
  if (parameters.contains(original)) return;
  parameters[original] = number < 0 ? model.positions : static_cast<std::int64_t>(form.floor);
}

/// Of each layer its base of RoPE, 0 without.
void add_thetas(const ModelShape& model, Json& config) {
  Json thetas = Json::array();
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const int rope = model.kind(i).rope;
    thetas.push_back(rope < 0 ? 0.0 : model.ropes[static_cast<std::size_t>(rope)].base);
  }
  config["layer_rope_theta"] = thetas;
}

/// RoPE as versions before 5 read it, and as later ones do.
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

/// Qwen has two names of the number of experts, for old and new versions.
void add_experts(const ModelShape& model, const std::string& type, Json& config) {
  config["num_experts_per_tok"] = model.topk;
  config["output_router_logits"] = false;
  const bool is_mixtral = type == "mixtral";
  config[is_mixtral ? "intermediate_size" : "moe_intermediate_size"] = model.expert_ffn;
  if (is_mixtral || type == "qwen3_moe") config["num_local_experts"] = model.experts;
  if (type == "dots1") return add_dots_experts(model, config);
  if (!is_mixtral) add_qwen_experts(model, config);
}

/// Of each layer 1 if it has RoPE.
void add_rope_layers(const ModelShape& model, Json& config) {
  std::vector<int> turns;
  for (std::int64_t i = 0; i < model.layers; ++i) turns.push_back(model.kind(i).rope >= 0 ? 1 : 0);
  config["no_rope_layers"] = turns;
}

void add_window(const ModelShape& model, const HuggingFaceFamily& family, Json& config) {
  if (family.window == HuggingFaceWindow::none) return;
  const std::int64_t window = window_of(model);
  if (asks_for_window(family.window)) config["use_sliding_window"] = window > 0;
  config["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
  if (slides_everywhere(family.window)) return;
  // Without a list, a pattern would ask for windows of no length.
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

/// A number that rounding has moved off a whole one, which is all that transformers 5 takes.
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
  Json config = model.family == Family::gpt2 ? gpt2_config(model) : llama_config(model, preferred);
  const char* dtype = stored == DType::bf16 ? "bfloat16" : "float32";
  config["initializer_range"] = model.init_std;
  config["tie_word_embeddings"] = model.tied;
  config["bos_token_id"] = or_null(tokens.begin);
  config["eos_token_id"] = one_or_list(tokens.end);
  config["pad_token_id"] = or_null(tokens.padding);
  config["torch_dtype"] = dtype;
  config["dtype"] = dtype;
  return config.dump(2) + "\n";
}

std::string generation_config(const SpecialTokens& tokens) {
  Json config = Json::object();
  if (tokens.begin) config["bos_token_id"] = *tokens.begin;
  if (!tokens.end.empty()) config["eos_token_id"] = one_or_list(tokens.end);
  if (tokens.padding) config["pad_token_id"] = *tokens.padding;
  return config.empty() ? "" : config.dump(2) + "\n";
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
