#include "config/upstream/hugging_face.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "config/schema/values.h"
#include "config/upstream/hugging_face_reader.h"

namespace trainctl {
namespace {

constexpr std::int64_t usual_window = 4096;  // transformers' default of a missing key
constexpr int most_depth = 32;

/// Switches that none of the families has here.
void refuse_changes(HuggingFaceReader& reader) {
  reader.only("quantization_config", {}, "quantized weights are not read");
  reader.only("is_causal", {true}, "attention here never sees later tokens");
  reader.only("is_encoder_decoder", {false}, "only decoders are built");
  reader.only("add_cross_attention", {false}, "cross attention is not built");
  reader.only("attn_logit_softcapping", {}, "soft caps on attention scores are not built");
  reader.only("final_logit_softcapping", {}, "soft caps on logits are not built");
  reader.only("pruned_heads", {HuggingFaceJson::object()}, "pruned heads are not built");
}

/// Architectures name the same class as model_type: LlamaForCausalLM for llama.
void refuse_other_class(HuggingFaceReader& reader, const std::string& type) {
  const HuggingFaceJson& names = reader.at("architectures");
  if (!names.is_array()) return;
  std::string wanted = type;
  std::erase(wanted, '_');
  for (const HuggingFaceJson& name : names) {
    const std::string given = name.is_string() ? lower_case(name.get<std::string>()) : "";
    const auto is = [&](const char* end) { return given == wanted + end; };
    if (is("forcausallm") || is("lmheadmodel") || is("model")) continue;
    return reader.problem("architectures", "expected the language model of model_type " + type);
  }
}

/// Marks of other models, which a file may have beside a model_type that its own code reads in
/// another way.
void refuse_other_models(HuggingFaceReader& reader, const std::string& type,
                         const HuggingFaceFamily* family) {
  const HuggingFaceJson& code = reader.at("auto_map");
  for (const char* name : {"AutoModel", "AutoModelForCausalLM"}) {
    if (code.is_object() && code.contains(name)) {
      reader.problem("auto_map", "the model has code of its own, which is not read");
      break;
    }
  }
  for (const char* key : {"alibi", "use_alibi", "parallel_residual", "use_parallel_residual",
                          "parallel_attn", "multi_query", "multi_latent_attention"}) {
    reader.only(key, {false}, "the families here have none of it");
  }
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "logits_scaling",
                          "logit_scale", "scale_emb"}) {
    reader.only(key, {1}, "nothing is scaled here");
  }
  for (const char* key : {"attention_multiplier", "kv_lora_rank", "clip_qkv",
                          "attention_chunk_size", "query_pre_attn_scalar"}) {
    reader.only(key, {}, "attention here has nothing of the kind");
  }
  const bool normed = family != nullptr && family->qk_norms;
  for (const char* key : {"qk_norm", "use_qk_norm", "qk_layernorm"}) {
    reader.only(key, {normed}, "model_type says it");
  }
  if (family != nullptr && family->has_experts) return;
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    reader.only(key, {0, 1}, "models of model_type " + type + " have no experts");
  }
}

/// Words for the attention of each layer. A window hides nothing where the file has none that is
/// shorter than `positions`.
void read_layer_types(HuggingFaceReader& reader, std::int64_t layers, std::int64_t positions) {
  const HuggingFaceJson& kinds = reader.at("layer_types");
  if (kinds.is_null()) return;
  if (!kinds.is_array() || std::ssize(kinds) != layers) {
    return reader.problem("layer_types",
                          "expected a list of " + std::to_string(layers) + " words, one a layer");
  }
  const HuggingFaceJson& window = reader.at("sliding_window");
  const bool hides = window.is_number() && window < positions;
  for (const HuggingFaceJson& kind : kinds) {
    if (kind == "full_attention" || (kind == "sliding_attention" && !hides)) continue;
    return reader.problem("layer_types", kind,
                          "attention here has no window: every layer is full_attention");
  }
}

/// A size that either key may give; both may be there if they agree.
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
  read_layer_types(reader, layers, positions);
}

/// One value that two places may give.
struct Twice {
  std::string key;
  HuggingFaceJson value;
};

/// The rope settings of either spelling; both may be there if they say the same.
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

/// Fills rope_scaling from the settings of rope_type llama3.
void read_llama3_rope(HuggingFaceReader& reader, const HuggingFaceJson& scaling,
                      std::int64_t positions) {
  std::string text;
  const auto take = [&](const char* name, std::optional<HuggingFaceJson> otherwise = {}) {
    const auto& old = scaling.contains(name) ? scaling[name] : HuggingFaceJson();
    Twice given = rope_setting(reader, name, std::string("rope_scaling.") + name, old);
    if (given.value.is_null() && otherwise) given.value = *otherwise;
    if (!given.value.is_number()) reader.problem(given.key, given.value, "expected a number");
    return given.value;
  };
  for (const char* name : {"factor", "low_freq_factor", "high_freq_factor"}) {
    const HuggingFaceJson value = take(name);
    if (value.is_number()) {
      text += std::string(name) + ": " + write_value(value.get<double>()) + ", ";
    }
  }
  const HuggingFaceJson& top = reader.at("original_max_position_embeddings");
  const HuggingFaceJson original = top.is_null() ? take("original_max_position_embeddings",
                                                        static_cast<std::uint64_t>(positions))
                                                 : top;
  if (!original.is_number_unsigned()) {
    return reader.problem("original_max_position_embeddings", original, "expected a whole number");
  }
  text += "original_max_position_embeddings: " + std::to_string(original.get<std::uint64_t>());
  reader.give_text("rope_scaling", "{" + text + "}");
}

/// `rope_type` decides; older files call it `type`.
HuggingFaceJson old_rope_type(const HuggingFaceJson& scaling) {
  for (const char* name : {"rope_type", "type"}) {
    if (scaling.contains(name)) return scaling[name];
  }
  return {};
}

void read_rope(HuggingFaceReader& reader, const HuggingFaceFamily& family, std::int64_t positions) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const HuggingFaceJson& value = reader.at(key);
    if (!value.is_null() && !value.is_object()) {
      return reader.problem(key, "expected an object or null");
    }
  }
  for (const char* layers : {"full_attention", "sliding_attention"}) {
    if (reader.at("rope_parameters").contains(layers)) {
      return reader.problem("rope_parameters", "all layers have the same RoPE here");
    }
  }
  const HuggingFaceJson scaling =
      reader.at("rope_scaling").is_object() ? reader.at("rope_scaling") : HuggingFaceJson::object();
  const Twice theta = rope_setting(reader, "rope_theta", "rope_theta", reader.at("rope_theta"));
  reader.give("rotary_base", reader.number(theta.key, theta.value, family.rope_theta));
  const Twice partial = rope_setting(reader, "partial_rotary_factor", "partial_rotary_factor",
                                     reader.at("partial_rotary_factor"));
  if (!partial.value.is_null() && partial.value != 1.0) {
    reader.problem(partial.key, partial.value, "RoPE turns whole heads here");
  }
  const Twice kind =
      rope_setting(reader, "rope_type", "rope_scaling.rope_type", old_rope_type(scaling));
  if (kind.value == "llama3") return read_llama3_rope(reader, scaling, positions);
  if (!kind.value.is_null() && kind.value != "default") {
    return reader.problem(kind.key, kind.value, "RoPE is built as \"default\" and \"llama3\"");
  }
  if (kind.value.is_null() && !scaling.empty()) {
    return reader.problem("rope_scaling", "it needs a rope_type");
  }
  reader.give_text("rope_scaling", "{factor: 1}");
}

/// Whether a layer has the window that the file names: a list may say it for each layer, or a number
/// of first layers.
bool some_layer_slides(HuggingFaceReader& reader, const HuggingFaceFamily& family,
                       std::int64_t layers) {
  if (family.window == HuggingFaceWindow::all || family.window == HuggingFaceWindow::all_if_given ||
      family.window == HuggingFaceWindow::if_asked_all) {
    return true;
  }
  const HuggingFaceJson& kinds = reader.at("layer_types");
  if (kinds.is_array()) {
    return std::find(kinds.begin(), kinds.end(), "sliding_attention") != kinds.end();
  }
  if (family.window == HuggingFaceWindow::if_asked_last ||
      family.window == HuggingFaceWindow::without_rope) {
    return true;
  }
  return reader.size("max_window_layers", family.max_window_layers) < layers;
}

/// A window that is shorter than the context hides tokens, which attention here does not: whether
/// there is one.
bool refuse_window(HuggingFaceReader& reader, const HuggingFaceFamily& family, std::int64_t layers,
                   std::int64_t positions) {
  const HuggingFaceWindow rule = family.window;
  if (rule == HuggingFaceWindow::none) return false;
  if (asks_for_window(rule) && !reader.flag("use_sliding_window", false)) return false;
  const bool by_default = !reader.has("sliding_window");
  if (by_default && (rule == HuggingFaceWindow::all_if_given ||
                     rule == HuggingFaceWindow::without_rope)) {
    return false;
  }
  if (!by_default && reader.at("sliding_window").is_null()) return false;
  const std::int64_t window = reader.size("sliding_window", usual_window);
  if (window >= positions || !some_layer_slides(reader, family, layers)) return false;
  const std::string limit = std::to_string(positions);
  reader.problem("sliding_window", window,
                 std::string(by_default ? "this is the value of a missing key; " : "") +
                     "attention here has no window, and max_position_embeddings is " + limit);
  return true;
}

void read_head_size(HuggingFaceReader& reader, const HuggingFaceFamily& family, std::int64_t width,
                    std::int64_t heads) {
  const std::int64_t usual = family.head_dim > 0 ? family.head_dim : width / heads;
  // A width of 1 is also what stands for one that cannot be read.
  if (usual < 1 && width > 1) {
    return reader.problem("num_attention_heads", "hidden_size is smaller");
  }
  // Qwen2's class has no such key, but honours it.
  reader.give("kv_channels", reader.size("head_dim", usual));
}

void read_biases(HuggingFaceReader& reader, const HuggingFaceFamily& family) {
  const HuggingFaceBias bias = family.bias;
  reader.give("add_bias_linear", false);
  reader.give("add_qkv_bias",
              bias == HuggingFaceBias::always ||
                  (bias == HuggingFaceBias::by_key && reader.flag("qkv_bias", true)));
  if (bias == HuggingFaceBias::refused) {
    reader.only("attention_bias", {false}, "the attention's output has no bias here");
  }
  if (family.mlp_bias) reader.only("mlp_bias", {false}, "these MLPs have no biases here");
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
  reader.give("tie_word_embeddings", reader.flag("tie_word_embeddings", family.tie_word_embeddings));
  read_biases(reader, family);
  reader.give("qk_layernorm", family.qk_norms);
  reader.only("hidden_act", {"silu", "swish"}, "the MLP of these families has SiLU");
  const bool refused = refuse_window(reader, family, layers, positions);
  read_layer_types(reader, layers, refused ? 0 : positions);
  read_rope(reader, family, positions);
  read_hugging_face_layers(reader, family, layers);
  if (family.has_experts) read_hugging_face_experts(reader, family, layers);
}

/// "dots1, gpt2, llama or qwen2"
std::string all_types() {
  std::vector<std::string> types{"gpt2"};
  for (const HuggingFaceFamily& family : hugging_face_families()) types.emplace_back(family.type);
  std::ranges::sort(types);
  std::string text = types.front();
  for (std::size_t i = 1; i < types.size(); ++i) {
    text += (i + 1 < types.size() ? ", " : " or ") + types[i];
  }
  return text;
}

/// Refuses a key that is given twice, of which the JSON library would keep the last.
HuggingFaceJson parse(std::string_view text, std::vector<std::string>& problems) {
  std::vector<std::set<std::string>> open;
  bool is_deep = false;
  const HuggingFaceJson::parser_callback_t watch =
      [&](int depth, HuggingFaceJson::parse_event_t event, HuggingFaceJson& value) {
        is_deep = is_deep || depth > most_depth;
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

HuggingFaceConfig read_hugging_face_config(std::string_view json) {
  HuggingFaceConfig result;
  const HuggingFaceJson root = parse(json, result.problems);
  if (!result.problems.empty()) return result;
  HuggingFaceReader reader(root, result);
  const HuggingFaceJson& given = reader.at("model_type");
  const std::string type = given.is_string() ? given.get<std::string>() : "";
  const HuggingFaceFamily* rotary = hugging_face_family(type);
  if (type != "gpt2" && rotary == nullptr) {
    reader.problem("model_type", "expected " + all_types());
    return result;
  }
  refuse_changes(reader);
  if (type == "gpt2") {
    read_gpt2(reader);
  } else {
    read_rotary(reader, *rotary);
  }
  refuse_other_class(reader, type);
  refuse_other_models(reader, type, rotary);
  reader.give("init_method_std", reader.number("initializer_range", 0.02));
  result.model = "{" + result.model + "}";
  if (!result.moe.empty()) result.moe = "{" + result.moe + "}";
  return result;
}

}  // namespace trainctl
