#include "config/upstream/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
#include "config/schema/values.h"
#include "config/schema/words.h"
#include "config/upstream/hugging_face_reader.h"

namespace trainctl {
namespace {

constexpr int max_depth = 32;

/// The rows or columns of a block; 0 if the value is not a valid number.
std::int64_t block_size(const HuggingFaceJson& size) {
  const bool fits = size.is_number_unsigned() && size.get<std::uint64_t>() <= (1U << 20);
  return fits ? size.get<std::int64_t>() : 0;
}

/// The blocks of 8-bit values described by quantization_config; none without such values.
std::optional<HuggingFaceBlocks> read_blocks(HuggingFaceReader& reader) {
  const HuggingFaceJson& all = reader.at("quantization_config");
  if (all.is_null()) return std::nullopt;
  const auto problem = [&](const char* key, const char* rule) {
    const std::string path = "quantization_config" + (*key == 0 ? "" : formatted(".{}", key));
    reader.problem(path, *key == 0 ? all : all[key], rule);
    return std::nullopt;
  };
  if (!all.is_object() || !all.contains("quant_method")) {
    return problem("", "expected an object with quant_method");
  }
  if (all["quant_method"] != "fp8") {
    return problem("quant_method", "of quantized weights only fp8 is read");
  }
  if (all.contains("fmt") && all["fmt"] != "e4m3") return problem("fmt", "fp8 is read as e4m3");
  if (!all.contains("weight_block_size")) return HuggingFaceBlocks{128, 128};
  const HuggingFaceJson& sizes = all["weight_block_size"];
  if (sizes.is_null()) return HuggingFaceBlocks{};
  HuggingFaceBlocks blocks;
  if (sizes.is_array() && sizes.size() == 2) {
    blocks = {block_size(sizes[0]), block_size(sizes[1])};
  }
  if (blocks.rows > 0 && blocks.columns > 0) return blocks;
  return problem("weight_block_size", "expected two whole numbers of at least 1, or null");
}

/// Refuses options that no family here has.
void refuse_changes(HuggingFaceReader& reader) {
  reader.only("is_causal", {true}, "attention here never sees later tokens");
  reader.only("is_encoder_decoder", {false}, "only decoders are built");
  reader.only("add_cross_attention", {false}, "cross attention is not built");
  reader.only("pruned_heads", {HuggingFaceJson::object()}, "pruned heads are not built");
}

/// Checks that `architectures` names the class of model_type: LlamaForCausalLM for llama.
void refuse_other_class(HuggingFaceReader& reader, const std::string& type,
                        const HuggingFaceFamily* family) {
  const HuggingFaceJson& names = reader.at("architectures");
  if (!names.is_array()) return;
  const std::string wanted = lower_case(family != nullptr ? std::string(family->class_name) : type);
  for (const HuggingFaceJson& name : names) {
    const std::string given = name.is_string() ? lower_case(name.get<std::string>()) : "";
    const auto is = [&](const char* end) { return given == wanted + end; };
    if (is("forcausallm") || is("lmheadmodel") || is("model")) continue;
    if (given == type + "forcausallm") continue;  // another type with the same class
    return reader.problem("architectures", "expected the language model of model_type " + type);
  }
}

/// Refuses a model with its own code, unless the class in transformers has `replaced` that code.
void refuse_own_code(HuggingFaceReader& reader, bool replaced) {
  const HuggingFaceJson& code = reader.at("auto_map");
  for (const char* name : {"AutoModel", "AutoModelForCausalLM"}) {
    if (!replaced && code.is_object() && code.contains(name)) {
      return reader.problem("auto_map", "the model has code of its own, which is not read");
    }
  }
}

/// Refuses a file with keys of another kind of model, even if its model_type is known: the code
/// that belongs to the file may read these keys differently.
void refuse_other_models(HuggingFaceReader& reader, const std::string& type,
                         const HuggingFaceFamily* family) {
  refuse_own_code(reader, family != nullptr && family->named_code);
  for (const char* key : {"alibi", "use_alibi", "parallel_residual", "use_parallel_residual",
                          "parallel_attn", "multi_query", "multi_latent_attention"}) {
    reader.only(key, {false}, "the families here have none of it");
  }
  for (const char* key : {"logit_scale", "scale_emb"}) {
    reader.only(key, {1}, "nothing is scaled here");
  }
  if (family == nullptr) {
    reader.only("attn_logit_softcapping", {}, "a GPT-2 has no soft caps");
    reader.only("final_logit_softcapping", {}, "a GPT-2 has no soft caps");
  }
  if (family == nullptr || !family->multipliers) {
    for (const char* key : {"embedding_multiplier", "residual_multiplier", "logits_scaling"}) {
      reader.only(key, {1}, "model_type " + type + " scales nothing");
    }
    reader.only("attention_multiplier", {}, "model_type " + type + " scales nothing");
  }
  for (const char* key : {"kv_lora_rank", "clip_qkv", "attention_chunk_size"}) {
    reader.only(key, {}, "attention here has nothing of the kind");
  }
  if (family == nullptr || family->query_pre_attn_scalar == 0) {
    reader.only("query_pre_attn_scalar", {}, "model_type " + type + " divides by another number");
  }
  if (family == nullptr || !family->theta_of_each_layer) {
    reader.only("layer_rope_theta", {}, "model_type " + type + " has one base of RoPE");
  }
  reader.only("use_bidirectional_attention", {false}, "attention here never sees later tokens");
  const bool normed = family != nullptr && family->qk_norms;
  for (const char* key : {"qk_norm", "use_qk_norm", "qk_layernorm"}) {
    reader.only(key, {normed}, "model_type says it");
  }
  if (family != nullptr && family->has_experts) return;
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    reader.only(key, {0, 1}, "models of model_type " + type + " have no experts");
  }
}

/// Requires full attention in every layer, as GPT-2 has.
void refuse_layer_types(HuggingFaceReader& reader, std::int64_t layers) {
  const HuggingFaceJson& words = reader.at("layer_types");
  if (words.is_null()) return;
  const bool full = words.is_array() && std::ssize(words) == layers &&
                    std::ranges::all_of(words, [](const HuggingFaceJson& word) {
                      return word == "full_attention";
                    });
  if (!full) {
    reader.problem("layer_types", "every layer of a GPT-2 is full_attention, one word a layer");
  }
}

/// A size given by either of two keys; if both are given, they must agree.
std::int64_t size_of_either(HuggingFaceReader& reader, const std::string& key,
                            const std::string& other, std::int64_t missing) {
  if (!reader.has(other)) return reader.size_or(key, missing);
  if (reader.has(key) && reader.at(key) != reader.at(other)) {
    reader.problem(other, key + " says otherwise");
  }
  return reader.size(other);
}

void read_gpt2(HuggingFaceReader& reader) {
  const std::int64_t width = size_of_either(reader, "n_embd", "hidden_size", 768);
  const std::int64_t layers = size_of_either(reader, "n_layer", "num_hidden_layers", 12);
  reader.give("family", std::string("gpt2"));
  reader.give("num_layers", layers);
  reader.give("hidden_size", width);
  reader.give("num_attention_heads", size_of_either(reader, "n_head", "num_attention_heads", 12));
  reader.give("ffn_hidden_size", reader.size("n_inner", 4 * width));
  reader.give("vocab_size", reader.size_or("vocab_size", 50'257));
  const std::int64_t positions =
      size_of_either(reader, "n_positions", "max_position_embeddings", 1024);
  reader.give("max_position_embeddings", positions);
  reader.give("seq_length", positions);
  reader.give("norm_epsilon", reader.number("layer_norm_epsilon", 1e-5));
  reader.give("tie_word_embeddings", reader.flag("tie_word_embeddings", true));
  reader.give("add_bias_linear", true);
  reader.give("add_qkv_bias", true);
  reader.only("activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"},
              "the gpt2 family has GELU in its tanh form, gelu_new");
  reader.only("scale_attn_weights", {true}, "attention scores are divided by sqrt(head size)");
  reader.only("scale_attn_by_inverse_layer_idx", {false},
              "attention scores are scaled the same in every layer");
  refuse_layer_types(reader, layers);
}

void read_head_size(HuggingFaceReader& reader, const HuggingFaceFamily& family, std::int64_t width,
                    std::int64_t heads) {
  const std::int64_t usual = family.head_dim > 0 ? family.head_dim : width / heads;
  // A width of 1 may stand for an unreadable one.
  if (usual < 1 && width > 1) {
    return reader.problem("num_attention_heads", "hidden_size is smaller");
  }
  // Qwen2's class does not declare head_dim, but uses it.
  reader.give("kv_channels", reader.size("head_dim", usual));
}

void read_biases(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  const HuggingFaceFamily::Biases& rule = family.biases;
  const auto flag = [&](std::string_view key, std::string_view old, bool missing) {
    const bool is_old = !old.empty() && !reader.has(std::string(key));
    return !key.empty() && reader.flag(std::string(is_old ? old : key), missing);
  };
  const bool asked = flag(rule.key, rule.old_key, rule.usual);
  reader.give("add_bias_linear", false);
  reader.give("add_qkv_bias", rule.always || asked);
  if ((rule.out && asked) || flag(rule.out_key, "", false)) reader.give("add_out_bias", true);
  if ((rule.mlp && asked) || flag(rule.mlp_key, rule.old_mlp_key, false)) {
    reader.give("add_mlp_bias", true);
  }
  for (const char* key : {"attention_bias", "attention_out_bias", "mlp_bias", "use_bias"}) {
    if (rule.key == key || rule.out_key == key || rule.mlp_key == key) continue;
    reader.only(key, {false}, formatted("model_type {} has no such biases", family.type));
  }
}

void read_norms(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  reader.give("qk_layernorm", family.qk_norms);
  if (family.qk_norm_form == QkNormForm::whole) {
    reader.give("qk_layernorm_form", std::string("whole"));
  }
  if (family.qk_norm_after_rope) reader.give("qk_layernorm_after_rope", true);
  NormPlacement placement = family.norm_placement;
  if (family.optional_post_norms && !reader.flag("use_post_norm", true)) {
    placement = NormPlacement::pre;
  }
  if (placement != NormPlacement::pre) {
    reader.give("norm_placement", std::string(word_of(placement)));
  }
}

/// Our word for an activation; "" if it is not built.
std::string activation_of(const HuggingFaceJson& word) {
  constexpr std::pair<const char*, const char*> words[] = {{"silu", "silu"},
                                                           {"swish", "silu"},
                                                           {"gelu_pytorch_tanh", "gelu"},
                                                           {"gelu_new", "gelu"},
                                                           {"gelu_fast", "gelu"},
                                                           {"relu2", "relu2"},
                                                           {"quick_gelu", "quick_gelu"},
                                                           {"sigmoid", "sigmoid"}};
  for (const auto& [theirs, ours] : words) {
    if (word == theirs) return ours;
  }
  return "";
}

void read_mlp(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  const HuggingFaceJson& newer = reader.at("hidden_activation");
  const char* key = newer.is_null() ? "hidden_act" : "hidden_activation";
  HuggingFaceJson word = reader.at(key);
  if (word.is_null()) word = std::string(family.activation);
  const std::string ours = activation_of(word);
  if (ours.empty()) {
    reader.problem(
        key, "activations are built as silu, gelu_pytorch_tanh, relu2, quick_gelu and sigmoid");
  } else if (ours != "silu") {
    reader.give("activation", ours);
  }
  if (!family.gated) reader.give("gated_linear_unit", false);
}

/// Reads the soft caps; null means no cap.
void read_caps(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  for (const auto& [key, missing] :
       {std::pair{"attn_logit_softcapping", 50.0}, std::pair{"final_logit_softcapping", 30.0}}) {
    const HuggingFaceJson& given = reader.at(key);
    if (!family.soft_caps) {
      reader.only(key, {}, formatted("model_type {} has no soft caps here", family.type));
    } else if (!reader.has(key)) {
      reader.give(key, missing);
    } else if (!given.is_null()) {
      reader.give(key, reader.number(key, missing));
    }
  }
}

/// Reads factors of scores, embedding, branches and logits; files may divide by the last one.
void read_multipliers(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                      std::int64_t width) {
  if (family.zero_centered_norms) {
    reader.give("zero_centered_norm", true);
    reader.give("embedding_multiplier", std::sqrt(static_cast<double>(width)));
  }
  if (family.query_pre_attn_scalar > 0) {
    const double scalar = reader.number("query_pre_attn_scalar", family.query_pre_attn_scalar);
    if (scalar <= 0) reader.problem("query_pre_attn_scalar", "expected a number above 0");
    reader.give("softmax_scale", 1 / std::sqrt(scalar > 0 ? scalar : 1.0));
  }
  read_caps(reader, family);
  if (!family.multipliers) return;
  const auto factor = [&](const char* key) {
    const double value = reader.number(key, 1.0);
    if (value <= 0) reader.problem(key, "expected a number above 0");
    return value > 0 ? value : 1.0;
  };
  // If missing: 1 if logits are divided, the usual scale if they are multiplied.
  if (!family.multiplies_logits || !reader.at("attention_multiplier").is_null()) {
    reader.give("softmax_scale", factor("attention_multiplier"));
  }
  reader.give("embedding_multiplier", factor("embedding_multiplier"));
  reader.give("residual_multiplier", factor("residual_multiplier"));
  const double scaling = factor("logits_scaling");
  reader.give("logit_scale", family.multiplies_logits ? scaling : 1 / scaling);
}

void read_rotary(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  const HuggingFaceFamily::Sizes& usual = family.sizes;
  const std::int64_t width = reader.size_or("hidden_size", usual.hidden_size);
  const std::int64_t heads = reader.size_or("num_attention_heads", usual.num_attention_heads);
  const std::int64_t layers = reader.size_or("num_hidden_layers", usual.num_hidden_layers);
  const std::int64_t positions =
      reader.size_or("max_position_embeddings", usual.max_position_embeddings);
  reader.give("family", std::string("llama"));
  reader.give("num_layers", layers);
  reader.give("hidden_size", width);
  reader.give("num_attention_heads", heads);
  const std::int64_t groups = usual.num_key_value_heads;
  const bool by_default = groups > 0 && !reader.has("num_key_value_heads");
  reader.give("num_query_groups", by_default ? groups : reader.size("num_key_value_heads", heads));
  read_head_size(reader, family, width, heads);
  reader.give("ffn_hidden_size", reader.size_or("intermediate_size", usual.intermediate_size));
  reader.give("vocab_size", reader.size_or("vocab_size", usual.vocab_size));
  reader.give("max_position_embeddings", positions);
  reader.give("seq_length", positions);
  reader.give("norm_epsilon", reader.number("rms_norm_eps", family.rms_norm_eps));
  reader.give("tie_word_embeddings",
              reader.flag("tie_word_embeddings", family.tie_word_embeddings));
  read_biases(reader, family);
  read_norms(reader, family);
  read_mlp(reader, family);
  read_multipliers(reader, family, width);
  if (family.sinks) reader.give("softmax_type", std::string("learnable"));
  const HuggingFaceRopes ropes = read_hugging_face_rope(reader, family, layers, positions);
  std::set<std::int64_t> routed;
  if (family.has_experts) routed = read_hugging_face_experts(reader, family, layers);
  read_hugging_face_layers(reader, family, layers, positions, ropes, routed);
}

/// Sets `text` to the text model's part of a config.json for images and text, completed by the keys
/// outside of this part that apply to it.
void read_text_part(HuggingFaceReader& outside, const HuggingFaceWrapper& wrapper,
                    HuggingFaceJson& text) {
  text = outside.at("text_config");
  if (!text.is_object()) {
    outside.problem("text_config", "expected an object with the keys of the text's model");
    text = HuggingFaceJson::object();
  }
  if (!text.contains("model_type")) text["model_type"] = std::string(wrapper.text_type);
  // The first files of this type have another name for the text model.
  if (text["model_type"] == formatted("{}_text", wrapper.type)) {
    text["model_type"] = std::string(wrapper.text_type);
  }
  const HuggingFaceJson inside = outside.with(text).at("tie_word_embeddings");
  HuggingFaceJson tied = outside.at("tie_word_embeddings");
  if (tied.is_null()) tied = inside;
  if (tied.is_null()) tied = wrapper.tie_word_embeddings;
  if (wrapper.text_may_tie && inside == true) tied = true;
  text["tie_word_embeddings"] = tied;
  for (const HuggingFaceJson& name : outside.at("architectures")) {
    if (name == formatted("{}ForConditionalGeneration", wrapper.class_name)) continue;
    outside.problem("architectures",
                    formatted("expected the model of model_type {}", wrapper.type));
    break;
  }
  refuse_own_code(outside, false);
}

/// Text such as "dots1, gpt2, llama or qwen2".
std::string all_types() {
  std::vector<std::string> types{"gpt2"};
  for (const HuggingFaceFamily& family : hugging_face_families()) types.emplace_back(family.type);
  for (const HuggingFaceWrapper& outer : hugging_face_wrappers()) types.emplace_back(outer.type);
  std::ranges::sort(types);
  return listed(types, " or ");
}

/// Parses JSON; refuses duplicate keys, of which the library would keep only the last.
HuggingFaceJson parse(std::string_view text, std::vector<std::string>& problems) {
  std::vector<std::set<std::string>> open;
  bool is_deep = false;
  const HuggingFaceJson::parser_callback_t watch =
      [&](int depth, HuggingFaceJson::parse_event_t event, HuggingFaceJson& value) {
        is_deep = is_deep || depth > max_depth;
        if (event == HuggingFaceJson::parse_event_t::object_start) open.emplace_back();
        if (event == HuggingFaceJson::parse_event_t::object_end) open.pop_back();
        if (event == HuggingFaceJson::parse_event_t::key &&
            !open.back().insert(value.get<std::string>()).second) {
          problems.push_back(shown(value.get<std::string>()) + " is given twice");
        }
        return true;
      };
  const HuggingFaceJson root = HuggingFaceJson::parse(text, watch, false);
  if (!root.is_object()) problems.assign({"it is not a JSON object"});
  if (is_deep) problems.assign({"it is nested too deeply"});
  return root;
}

}  // namespace

std::optional<HuggingFaceBlocks> read_hugging_face_blocks(std::string_view json) {
  HuggingFaceConfig result;
  const HuggingFaceJson root = parse(json, result.problems);
  if (!root.is_object()) return std::nullopt;
  HuggingFaceReader reader(root, result);
  return read_blocks(reader);
}

HuggingFaceConfig read_hugging_face_config(std::string_view json) {
  HuggingFaceConfig result;
  const HuggingFaceJson root = parse(json, result.problems);
  if (!result.problems.empty()) return result;
  HuggingFaceReader outside(root, result);
  HuggingFaceJson text = root;
  const HuggingFaceJson& outer = outside.at("model_type");
  const HuggingFaceWrapper* wrapper =
      outer.is_string() ? hugging_face_wrapper(outer.get<std::string>()) : nullptr;
  if (wrapper != nullptr) read_text_part(outside, *wrapper, text);
  HuggingFaceReader reader = outside.with(text);
  const HuggingFaceJson& given = reader.at("model_type");
  const std::string type = given.is_string() ? given.get<std::string>() : "";
  const HuggingFaceFamily* rotary = hugging_face_family(type);
  if (type != "gpt2" && rotary == nullptr) {
    reader.problem("model_type", "expected " + all_types());
    return result;
  }
  read_blocks(outside);
  refuse_changes(reader);
  if (type == "gpt2") {
    read_gpt2(reader);
  } else {
    read_rotary(reader, *rotary);
  }
  refuse_other_class(reader, type, rotary);
  refuse_other_models(reader, type, rotary);
  reader.give("init_method_std", reader.number("initializer_range", 0.02));
  result.model = "{" + result.model + "}";
  if (!result.moe.empty()) result.moe = "{" + result.moe + "}";
  return result;
}

}  // namespace trainctl
