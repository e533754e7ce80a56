#include "weights/hugging_face_config.h"

#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "config/upstream/hugging_face_families.h"
#include "plan/model/form.h"
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

/// RoPE as versions before 5 read it, and as later ones do.
void add_rope(const ModelShape& model, Json& config) {
  Json parameters{{"rope_type", "default"}};
  const RopeForm rope = model.ropes.empty() ? RopeForm{} : model.ropes.front();
  const RopeScalingConfig& scaling = rope.scaling;
  config["rope_theta"] = rope.base;
  config["rope_scaling"] = nullptr;
  if (scaling.factor > 1) {
    parameters = {{"rope_type", "llama3"},
                  {"factor", scaling.factor},
                  {"low_freq_factor", scaling.low_freq_factor},
                  {"high_freq_factor", scaling.high_freq_factor},
                  {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
    config["rope_scaling"] = parameters;
  }
  parameters["rope_theta"] = rope.base;
  config["rope_parameters"] = parameters;
}

std::string architecture_of(const std::string& type) {
  const HuggingFaceFamily* family = hugging_face_family(type);
  require(family != nullptr, ExitCode::internal, "no class of transformers for " + type);
  return std::string(family->class_name) + "ForCausalLM";
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

Json llama_config(const ModelShape& model) {
  const std::string type = hugging_face_type(model);
  Json config{{"architectures", {architecture_of(type)}},
              {"model_type", type},
              {"vocab_size", model.vocab},
              {"hidden_size", model.hidden},
              {"intermediate_size", model.kind(0).ffn},
              {"num_hidden_layers", model.layers},
              {"num_attention_heads", model.heads},
              {"num_key_value_heads", model.kind(0).kv_heads},
              {"head_dim", model.head_dim},
              {"hidden_act", "silu"},
              {"max_position_embeddings", model.positions},
              {"rms_norm_eps", model.norm_epsilon},
              {"attention_dropout", model.attention_dropout}};
  const HuggingFaceFamily& family = *hugging_face_family(type);
  if (family.bias == HuggingFaceBias::refused) config["attention_bias"] = false;
  if (family.mlp_bias) config["mlp_bias"] = false;
  if (asks_for_window(family.window)) config["use_sliding_window"] = false;
  if (family.window != HuggingFaceWindow::none) config["sliding_window"] = nullptr;
  if (family.no_rope_layer_interval > 0) add_rope_layers(model, config);
  if (model.experts > 1) add_experts(model, type, config);
  add_rope(model, config);
  return config;
}

}  // namespace

SpecialTokens read_special_tokens(const std::filesystem::path& directory) {
  const Json first = read_json(directory / "generation_config.json");
  const Json second = read_json(directory / "config.json");
  const auto find = [&](const char* key) {
    const auto ids = ids_of(first, key);
    return ids.empty() ? ids_of(second, key) : ids;
  };
  const auto one = [&](const char* key) -> std::optional<std::int64_t> {
    const auto ids = find(key);
    if (ids.empty()) return std::nullopt;
    return ids.front();
  };
  return {one("bos_token_id"), find("eos_token_id"), one("pad_token_id")};
}

std::string hugging_face_config(const ModelShape& model, DType stored,
                                const SpecialTokens& tokens) {
  Json config = model.family == Family::gpt2 ? gpt2_config(model) : llama_config(model);
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
