#include "config/upstream/hugging_face.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "config/schema/values.h"

namespace trainctl {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t mistral_window = 4096;  // transformers' defaults of keys that are missing
constexpr std::int64_t qwen3_head_size = 128;
constexpr double usual_theta = 10'000;
constexpr int most_depth = 32;

/// One config.json: gives typed values and collects problems.
class Reader {
 public:
  Reader(const Json& root, HuggingFaceConfig& result) : root_(root), result_(result) {}

  /// The value of a key, null where it is missing.
  const Json& at(const std::string& key) const {
    static const Json null;
    const auto found = root_.find(key);
    return found == root_.end() ? null : *found;
  }
  bool has(const std::string& key) const { return root_.contains(key); }

  void problem(const std::string& key, const std::string& rule) { problem(key, at(key), rule); }
  void problem(const std::string& key, const Json& value, const std::string& rule) {
    const auto replace = Json::error_handler_t::replace;
    const std::string text = shown(value.dump(-1, ' ', false, replace));
    result_.problems.push_back(key + (value.is_null() ? " is missing; " : " is " + text + "; ") +
                               rule);
  }

  /// A whole number above 0; null and a missing key give `otherwise`, or are a problem.
  std::int64_t size(const std::string& key, std::optional<std::int64_t> otherwise = {}) {
    const Json& value = at(key);
    if (value.is_null() && otherwise) return *otherwise;
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                      value.get<std::uint64_t>() <= (std::uint64_t{1} << 40);
    if (!fits) problem(key, "expected a whole number of at least 1");
    return fits ? value.get<std::int64_t>() : 1;
  }
  double number(const std::string& key, const Json& value, double otherwise) {
    if (value.is_null()) return otherwise;
    if (!value.is_number()) problem(key, value, "expected a number");
    return value.is_number() ? value.get<double>() : otherwise;
  }
  double number(const std::string& key, double otherwise) {
    return number(key, at(key), otherwise);
  }
  bool flag(const std::string& key, bool otherwise) {
    const Json& value = at(key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) problem(key, "expected true or false");
    return value.is_boolean() ? value.get<bool>() : otherwise;
  }
  /// Missing, null or one of `accepted`; else a problem with this rule.
  void only(const std::string& key, const std::vector<Json>& accepted, const std::string& rule) {
    const Json& value = at(key);
    if (value.is_null()) return;
    for (const Json& one : accepted) {
      if (value == one) return;
    }
    problem(key, rule);
  }

  template <class Value>
  void give(const std::string& key, const Value& value) {
    const std::string text = write_value(value);
    result_.model += (result_.model.empty() ? "" : ", ") + key + ": " + text;
  }
  void give_text(const std::string& key, const std::string& text) {
    result_.model += (result_.model.empty() ? "" : ", ") + key + ": " + text;
  }

 private:
  const Json& root_;
  HuggingFaceConfig& result_;
};

/// Switches that none of the families has here.
void refuse_changes(Reader& reader) {
  reader.only("quantization_config", {}, "quantized weights are not read");
  reader.only("is_encoder_decoder", {false}, "only decoders are built");
  reader.only("add_cross_attention", {false}, "cross attention is not built");
  reader.only("attn_logit_softcapping", {}, "soft caps on attention scores are not built");
  reader.only("final_logit_softcapping", {}, "soft caps on logits are not built");
  reader.only("pruned_heads", {Json::object()}, "pruned heads are not built");
}

void read_gpt2(Reader& reader) {
  const std::int64_t width = reader.size("n_embd");
  reader.give("family", std::string("gpt2"));
  reader.give("num_layers", reader.size("n_layer"));
  reader.give("hidden_size", width);
  reader.give("num_attention_heads", reader.size("n_head"));
  reader.give("ffn_hidden_size", reader.size("n_inner", 4 * width));
  reader.give("vocab_size", reader.size("vocab_size"));
  const std::int64_t positions = reader.size("n_positions");
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
}

/// One value that two places may give.
struct Twice {
  std::string key;
  Json value;
};

/// The rope settings of either spelling; both may be there if they say the same.
Twice rope_setting(Reader& reader, const std::string& name, const std::string& old_key,
                   const Json& old_value) {
  const Json& parameters = reader.at("rope_parameters");
  const bool is_new = parameters.is_object() && parameters.contains(name);
  if (!is_new) return {old_key, old_value};
  const std::string key = "rope_parameters." + name;
  if (!old_value.is_null() && old_value != parameters[name]) {
    reader.problem(key, parameters[name], old_key + " says otherwise: " + shown(old_value.dump()));
  }
  return {key, parameters[name]};
}

/// Fills rope_scaling from the settings of rope_type llama3.
void read_llama3_rope(Reader& reader, const Json& scaling, std::int64_t positions) {
  std::string text;
  const auto take = [&](const char* name, std::optional<Json> otherwise = {}) {
    const auto& old = scaling.contains(name) ? scaling[name] : Json();
    Twice given = rope_setting(reader, name, std::string("rope_scaling.") + name, old);
    if (given.value.is_null() && otherwise) given.value = *otherwise;
    if (!given.value.is_number()) reader.problem(given.key, given.value, "expected a number");
    return given.value;
  };
  for (const char* name : {"factor", "low_freq_factor", "high_freq_factor"}) {
    const Json value = take(name);
    if (value.is_number()) {
      text += std::string(name) + ": " + write_value(value.get<double>()) + ", ";
    }
  }
  const Json& top = reader.at("original_max_position_embeddings");
  const Json original = top.is_null() ? take("original_max_position_embeddings", positions) : top;
  if (!original.is_number_unsigned()) {
    return reader.problem("original_max_position_embeddings", original, "expected a whole number");
  }
  text += "original_max_position_embeddings: " + std::to_string(original.get<std::uint64_t>());
  reader.give_text("rope_scaling", "{" + text + "}");
}

/// `rope_type` decides; older files call it `type`.
Json old_rope_type(const Json& scaling) {
  for (const char* name : {"rope_type", "type"}) {
    if (scaling.contains(name)) return scaling[name];
  }
  return {};
}

void read_rope(Reader& reader, std::int64_t positions) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json& value = reader.at(key);
    if (!value.is_null() && !value.is_object()) {
      return reader.problem(key, "expected an object or null");
    }
  }
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    if (reader.at("rope_parameters").contains(kind)) {
      return reader.problem("rope_parameters", "all layers have the same RoPE here");
    }
  }
  const Json scaling =
      reader.at("rope_scaling").is_object() ? reader.at("rope_scaling") : Json::object();
  const Twice theta = rope_setting(reader, "rope_theta", "rope_theta", reader.at("rope_theta"));
  reader.give("rotary_base", reader.number(theta.key, theta.value, usual_theta));
  const Twice partial = rope_setting(reader, "partial_rotary_factor", "partial_rotary_factor",
                                     reader.at("partial_rotary_factor"));
  if (!partial.value.is_null() && partial.value != 1.0) {
    reader.problem(partial.key, partial.value, "RoPE turns whole heads here");
  }
  const Twice type =
      rope_setting(reader, "rope_type", "rope_scaling.rope_type", old_rope_type(scaling));
  if (type.value == "llama3") return read_llama3_rope(reader, scaling, positions);
  if (!type.value.is_null() && type.value != "default") {
    return reader.problem(type.key, type.value, "RoPE is built as \"default\" and \"llama3\"");
  }
  if (type.value.is_null() && !scaling.empty()) {
    return reader.problem("rope_scaling", "it needs a rope_type");
  }
  reader.give_text("rope_scaling", "{factor: 1}");
}

/// A window that is shorter than the context hides tokens, which attention here does not.
void refuse_window(Reader& reader, const std::string& type, std::int64_t layers,
                   std::int64_t positions) {
  const bool is_mistral = type == "mistral";
  if (!is_mistral && !reader.flag("use_sliding_window", false)) return;
  const bool by_default = !reader.has("sliding_window");
  if (!by_default && reader.at("sliding_window").is_null()) return;
  const std::int64_t window = reader.size("sliding_window", mistral_window);
  if (window >= positions) return;
  const Json& kinds = reader.at("layer_types");
  if (kinds.is_array()) {
    if (std::find(kinds.begin(), kinds.end(), "sliding_attention") == kinds.end()) return;
  } else if (!is_mistral && reader.size("max_window_layers", 28) >= layers) {
    return;
  }
  const std::string limit = std::to_string(positions);
  reader.problem("sliding_window", window,
                 std::string(by_default ? "this is the value of a missing key; " : "") +
                     "attention here has no window, and max_position_embeddings is " + limit);
}

void read_head_size(Reader& reader, const std::string& type, std::int64_t width,
                    std::int64_t heads) {
  const std::int64_t usual = type == "qwen3" ? qwen3_head_size : width / heads;
  // A width of 1 is also what stands for one that cannot be read.
  if (usual < 1 && width > 1) {
    return reader.problem("num_attention_heads", "hidden_size is smaller");
  }
  // Qwen2's class has no such key, but honours it.
  reader.give("kv_channels", reader.size("head_dim", usual));
}

void read_rotary(Reader& reader, const std::string& type) {
  const std::int64_t width = reader.size("hidden_size");
  const std::int64_t heads = reader.size("num_attention_heads");
  const std::int64_t layers = reader.size("num_hidden_layers");
  const std::int64_t positions = reader.size("max_position_embeddings");
  const bool is_qwen = type.starts_with("qwen");
  reader.give("family", std::string("llama"));
  reader.give("num_layers", layers);
  reader.give("hidden_size", width);
  reader.give("num_attention_heads", heads);
  const bool needs_groups = type != "llama" && !reader.has("num_key_value_heads");
  reader.give("num_query_groups", needs_groups ? reader.size("num_key_value_heads")
                                               : reader.size("num_key_value_heads", heads));
  read_head_size(reader, type, width, heads);
  reader.give("ffn_hidden_size", reader.size("intermediate_size"));
  reader.give("vocab_size", reader.size("vocab_size"));
  reader.give("max_position_embeddings", positions);
  reader.give("seq_length", positions);
  reader.give("norm_epsilon", reader.number("rms_norm_eps", 1e-6));
  reader.give("tie_word_embeddings", reader.flag("tie_word_embeddings", false));
  reader.give("add_bias_linear", false);
  reader.give("add_qkv_bias", type == "qwen2");
  reader.give("qk_layernorm", type == "qwen3");
  reader.only("hidden_act", {"silu", "swish"}, "the MLP of these families has SiLU");
  if (type == "llama" || type == "qwen3") {
    reader.only("attention_bias", {false}, "the attention's output has no bias here");
  }
  if (type == "llama") reader.only("mlp_bias", {false}, "these MLPs have no biases here");
  if (type == "mistral" || is_qwen) refuse_window(reader, type, layers, positions);
  read_rope(reader, positions);
}

/// Refuses a key that is given twice, of which the JSON library would keep the last.
Json parse(std::string_view text, std::vector<std::string>& problems) {
  std::vector<std::set<std::string>> open;
  bool is_deep = false;
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& value) {
    is_deep = is_deep || depth > most_depth;
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second) {
      problems.push_back(shown(value.get<std::string>()) + " is given twice");
    }
    return true;
  };
  const Json root = Json::parse(text, watch, false);
  if (!root.is_object()) problems.assign({"it is not a JSON object"});
  if (is_deep) problems.assign({"it is nested too deeply"});
  return root;
}

}  // namespace

HuggingFaceConfig read_hugging_face_config(std::string_view json) {
  HuggingFaceConfig result;
  const Json root = parse(json, result.problems);
  if (!result.problems.empty()) return result;
  Reader reader(root, result);
  const Json& given = reader.at("model_type");
  const std::string type = given.is_string() ? given.get<std::string>() : "";
  static const std::set<std::string> rotary{"llama", "mistral", "qwen2", "qwen3"};
  if (type != "gpt2" && !rotary.contains(type)) {
    reader.problem("model_type", "expected gpt2, llama, mistral, qwen2 or qwen3");
    return result;
  }
  refuse_changes(reader);
  if (type == "gpt2") {
    read_gpt2(reader);
  } else {
    read_rotary(reader, type);
  }
  reader.give("init_method_std", reader.number("initializer_range", 0.02));
  result.model = "{" + result.model + "}";
  return result;
}

}  // namespace trainctl
