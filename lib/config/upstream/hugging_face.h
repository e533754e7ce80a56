// Converts the config.json of a Hugging Face model to our sections model and moe. Families: gpt2
// and those of hugging_face_families.cpp. Missing keys have the defaults of transformers. Of a
// model with images and text, only the text model is read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/choices.h"

namespace trainctl {

/// The scaling of 8-bit values: the size of the blocks that share a scale.
struct HuggingFaceBlocks {
  std::int64_t rows = 0, columns = 0;  // 0 if a whole tensor has one scale
  friend bool operator==(const HuggingFaceBlocks&, const HuggingFaceBlocks&) = default;
};

struct HuggingFaceConfig {
  std::string model;  // YAML map with keys of the model section; valid if there are no problems
  std::string moe;    // YAML map for the section moe; "" without experts
  // One entry for each key that cannot be converted, with its value and the rule.
  std::vector<std::string> problems;
};

/// Reads only quantization_config of a file, if it can be read; none without one.
std::optional<HuggingFaceBlocks> read_hugging_face_blocks(std::string_view json);

/// Reads both spellings of RoPE: rope_theta with rope_scaling, and rope_parameters. Reports a
/// problem for every setting that changes the model's numbers and has no key of ours.
HuggingFaceConfig read_hugging_face_config(std::string_view json);

// The Hugging Face families with rotary positions, one row each: defaults of their class in
// transformers 5, and the forms of their layers. Reader and writer test these properties, never the
// family itself.

/// Which layers use the sliding window of a config.json. layer_types decides instead where it is
/// given, unless the rule covers all layers.
///   none            the family has no window
///   all             every layer; a default window applies if the key is missing
///   all_if_given    every layer, if the key is given
///   later_layers    layers from max_window_layers on
///   if_asked        with use_sliding_window: later_layers
///   if_asked_all    with use_sliding_window: every layer
///   if_asked_even   with use_sliding_window: layers 0, 2, 4 ... before max_window_layers
///   without_rope    with use_sliding_window: layers without RoPE
///   but_each_nth    all layers but each sliding_window_pattern-th
///   but_first_of_n  all layers but the first of each sliding_window_pattern
using HuggingFaceWindow = OneOf<
    "none|all|all_if_given|later_layers|if_asked|if_asked_all|if_asked_even|without_rope|"
    "but_each_nth|but_first_of_n">;

/// The names in files of the norms before and after attention and before and after the MLP.
///   usual     input_layernorm, none, post_attention_layernorm, none
///   around    input_layernorm, post_attention_layernorm, pre_ and post_feedforward_layernorm
///   glm       input_layernorm, post_self_attn_layernorm, post_attention_layernorm,
///             post_mlp_layernorm
///   numbered  input_layernorm, post_norm1, post_attention_layernorm, post_norm2
using HuggingFaceNorms = OneOf<"usual|around|glm|numbered">;

/// Whether the family has the window only with use_sliding_window.
constexpr bool asks_for_window(HuggingFaceWindow rule) {
  return rule == "if_asked" || rule == "if_asked_all" || rule == "if_asked_even" ||
         rule == "without_rope";
}
/// Whether all layers or none use the window.
constexpr bool slides_everywhere(HuggingFaceWindow rule) {
  return rule == "all" || rule == "all_if_given" || rule == "if_asked_all";
}

/// Whether every n-th layer is without the window.
constexpr bool slides_by_pattern(HuggingFaceWindow rule) {
  return rule == "but_each_nth" || rule == "but_first_of_n";
}

struct HuggingFaceFamily {
  std::string_view type;        // value of model_type
  std::string_view class_name;  // such as LlamaForCausalLM
  bool named_code = false;      // older files name code of their own
  struct Sizes {
    std::int64_t vocab_size, hidden_size, intermediate_size;
    std::int64_t num_hidden_layers, num_attention_heads;
    std::int64_t num_key_value_heads;  // 0 = num_attention_heads
    std::int64_t max_position_embeddings;
  } sizes;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10'000;
  bool tie_word_embeddings = false;
  std::int64_t head_dim = 0;  // hidden_size / num_attention_heads if 0
  struct Biases {
    bool always = false;            // q, k and v always have biases
    std::string_view key{};         // key that gives q, k and v biases
    bool usual = false;             // default of that key
    bool out = false, mlp = false;  // the key also applies to attention's output, to the MLP
    std::string_view out_key{}, mlp_key{};      // separate keys for these; default: false
    std::string_view old_key{}, old_mlp_key{};  // names of key and mlp_key in older files
  } biases{};
  bool qk_norms = false;
  QkNormForm qk_norm_form = QkNormForm::head;
  bool qk_norm_after_rope = false;
  bool long_qk_names = false;  // query_layernorm instead of q_norm
  NormPlacement norm_placement = NormPlacement::pre;
  HuggingFaceNorms norm_names = "usual";
  bool optional_post_norms = false;      // use_post_norm: false omits the norms after branches
  std::string_view activation = "silu";  // default of hidden_act
  bool gated = true;
  bool interleaved = false;          // RoPE rotates pairs of neighbouring features
  bool partial_rotary = false;       // RoPE may rotate a part of each head
  double partial_rotary_factor = 1;  // default of the key
  bool zero_centered_norms = false;  // norms: 1 + weight; token embedding times sqrt(hidden_size)
  bool multipliers = false;          // keys that scale scores, embedding, branches and logits
  bool multiplies_logits = false;    // logits_scaling multiplies; otherwise it divides
  double query_pre_attn_scalar = 0;  // scores are divided by its square root; 0 without such a key
  bool soft_caps = false;            // keys that cap scores (default 50) and logits (default 30)
  bool square_out = false;           // attention's output projection is [hidden_size, hidden_size]
  bool fused_qkv = false;            // files store q, k and v as one matrix
  bool fused_gate_up = false;        // files store gate and up as one matrix
  HuggingFaceWindow window = "none";
  std::int64_t max_window_layers = 28;
  std::int64_t sliding_window = 4096;  // default of the key
  std::int64_t window_pattern = 0;     // default of the pattern's key
  std::string_view rope_scaling{};     // our value if the file has no settings of RoPE
  bool scales_full_rope_only = false;  // layers with a window have RoPE without scaling
  double local_theta = 0;              // default base of RoPE with a window; as other layers if 0
  bool turns_with_window = false;      // if some layers have a window, other layers lack RoPE
  bool theta_of_each_layer = false;    // key layer_rope_theta; a layer with 0 has no RoPE
  bool sinks = false;                  // every layer has attention sinks
  // Our value of attention_temperature if the file has no settings of RoPE (llama_4_scaling_beta is
  // one); "" if queries do not grow with their position.
  std::string_view temperature{};
  std::int64_t no_rope_layer_interval = 0;  // each n-th layer has no RoPE; all layers have it if 0
  bool has_experts = false;
  // Defaults of the keys about experts. A key without default is required.
  std::optional<std::int64_t> experts{}, num_experts_per_tok{}, moe_intermediate_size{},
      shared_expert_intermediate_size{};
};

/// A model of images and text whose text model is described by text_config.
struct HuggingFaceWrapper {
  std::string_view type;             // value of model_type
  std::string_view class_name;       // such as Gemma3ForConditionalGeneration
  std::string_view text_type;        // default of model_type in text_config
  bool tie_word_embeddings = false;  // default if both text_config and the file around it lack it
  bool text_may_tie = false;         // a true value in text_config counts
};
/// The family with this model_type, or null.
const HuggingFaceWrapper* hugging_face_wrapper(std::string_view type);
std::span<const HuggingFaceWrapper> hugging_face_wrappers();

/// All families. Export tries those without experts in this order.
std::span<const HuggingFaceFamily> hugging_face_families();
/// The family with this model_type, or null.
const HuggingFaceFamily* hugging_face_family(std::string_view type);

// Layers that other projects' files list one by one, as model.layers and layer_pattern.

/// Settings that a file gives for each layer separately.
struct LayerKeys {
  bool turns = true;
  std::int64_t window = 0;  // no window if 0
  bool local = false;       // the layer uses the RoPE of layers with a window
  double base = 0;          // base of RoPE; the model's if 0
  bool routed = false;      // the layer has experts, if the file tells it for each layer
  bool operator==(const LayerKeys&) const = default;
};

/// Whether the layers are of more than one kind.
bool have_kinds(const std::vector<LayerKeys>& layers);
/// The kinds of layers, in the order of their first layers: "[{name: rope}, {name: no_rope,
/// use_rope: false}]". Names number the bases of RoPE: "rope", "rope_base1". `local_rope`: further
/// keys of layers with the RoPE of windows.
std::string write_kinds(const std::vector<LayerKeys>& layers, const std::string& local_rope);
/// The layers by the names of write_kinds: "rope*3, no_rope".
std::string write_pattern(const std::vector<LayerKeys>& layers);

}  // namespace trainctl
