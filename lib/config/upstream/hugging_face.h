// The config.json of a Hugging Face model, read as values of our sections model and moe. Families:
// gpt2 and those of hugging_face_families.cpp; missing keys have the values that transformers gives
// them. Of a model that also sees images, the part of the text is read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/choices.h"

namespace trainctl {

/// How values of 8 bits are scaled: the rows and columns of the blocks that have one scale each.
struct HuggingFaceBlocks {
  std::int64_t rows = 0, columns = 0;  // 0: one scale for a whole tensor
  friend bool operator==(const HuggingFaceBlocks&, const HuggingFaceBlocks&) = default;
};

struct HuggingFaceConfig {
  std::string model;  // YAML, a map with keys of the model section; usable without problems
  std::string moe;    // the same of the section moe; "" without experts
  // One for each key that cannot be read or computed here, with its value and the rule.
  std::vector<std::string> problems;
};

/// quantization_config of a file alone, as far as it can be read; nothing without one.
std::optional<HuggingFaceBlocks> read_hugging_face_blocks(std::string_view json);

/// Reads both spellings of RoPE: rope_theta with rope_scaling, and rope_parameters. Everything that
/// would change the model's numbers and that no key of ours expresses is a problem.
HuggingFaceConfig read_hugging_face_config(std::string_view json);

// The families of Hugging Face that have rotary positions, one row each: what their class in
// transformers 5 takes for keys that a config.json leaves out, and which forms they have. Reading
// and writing ask for these properties, never for a family.

/// Which layers have the window that a config.json names. layer_types says it instead where it is
/// there and the rule is not of all layers.
enum class HuggingFaceWindow : std::uint8_t {
  none,            // of the family
  all,             // every layer; a missing key is a window
  all_if_given,    // the same; a missing key is none
  later_layers,    // those from max_window_layers on
  if_asked,        // with use_sliding_window: later_layers
  if_asked_all,    // with use_sliding_window: every layer
  if_asked_even,   // with use_sliding_window: layers 0, 2, 4 ... before max_window_layers
  without_rope,    // with use_sliding_window: those without RoPE
  but_each_nth,    // all but each sliding_window_pattern-th
  but_first_of_n,  // all but the first of so many
};

/// The names that files give to the norms before and after attention and before and after the MLP.
enum class HuggingFaceNorms : std::uint8_t {
  usual,   // input_layernorm, -, post_attention_layernorm, -
  around,  // input_layernorm, post_attention_layernorm, pre_ and post_feedforward_layernorm
  glm,  // input_layernorm, post_self_attn_layernorm, post_attention_layernorm, post_mlp_layernorm
  numbered,  // input_layernorm, post_norm1, post_attention_layernorm, post_norm2
};

/// Whether the family has the window only with use_sliding_window.
constexpr bool asks_for_window(HuggingFaceWindow rule) {
  return rule == HuggingFaceWindow::if_asked || rule == HuggingFaceWindow::if_asked_all ||
         rule == HuggingFaceWindow::if_asked_even || rule == HuggingFaceWindow::without_rope;
}
/// Whether every layer has it or none.
constexpr bool slides_everywhere(HuggingFaceWindow rule) {
  return rule == HuggingFaceWindow::all || rule == HuggingFaceWindow::all_if_given ||
         rule == HuggingFaceWindow::if_asked_all;
}

/// Whether the layers without the window come at equal distances.
constexpr bool slides_by_pattern(HuggingFaceWindow rule) {
  return rule == HuggingFaceWindow::but_each_nth || rule == HuggingFaceWindow::but_first_of_n;
}

struct HuggingFaceFamily {
  std::string_view type;        // of model_type
  std::string_view class_name;  // LlamaForCausalLM is that of Llama
  bool named_code = false;      // files from before the class was there name code of their own
  struct Sizes {
    std::int64_t vocab_size, hidden_size, intermediate_size;
    std::int64_t num_hidden_layers, num_attention_heads;
    std::int64_t num_key_value_heads;  // 0: as many as query heads
    std::int64_t max_position_embeddings;
  } sizes;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10'000;
  bool tie_word_embeddings = false;
  std::int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  struct Biases {
    bool always = false;            // of q, k and v
    std::string_view key{};         // that asks for them
    bool usual = false;             // its value where it is missing
    bool out = false, mlp = false;  // it asks for those of the attention's output, of the MLP, too
    std::string_view out_key{}, mlp_key{};      // keys of their own; false where they are missing
    std::string_view old_key{}, old_mlp_key{};  // what older files call key and mlp_key
  } biases{};
  bool qk_norms = false;
  QkNormForm qk_norm_form = QkNormForm::head;
  bool qk_norm_after_rope = false;
  bool long_qk_names = false;  // query_layernorm instead of q_norm
  NormPlacement norm_placement = NormPlacement::pre;
  HuggingFaceNorms norm_names = HuggingFaceNorms::usual;
  bool optional_post_norms = false;      // use_post_norm: false leaves out those after branches
  std::string_view activation = "silu";  // where hidden_act is missing
  bool gated = true;
  bool interleaved = false;          // RoPE turns pairs of neighbours
  bool partial_rotary = false;       // it may turn a part of each head
  double partial_rotary_factor = 1;  // where it is missing
  bool zero_centered_norms = false;  // with a token embedding times sqrt(hidden_size)
  bool multipliers = false;          // keys that scale scores, embedding, branches and logits
  bool multiplies_logits = false;    // logits_scaling does; else it divides
  double query_pre_attn_scalar = 0;  // scores are divided by its root; 0: no such key
  bool soft_caps = false;            // keys of scores (50 where it is missing) and logits (30)
  bool square_out = false;           // the attention's output is [hidden_size, hidden_size]
  bool fused_qkv = false;            // one matrix of q, k and v in files
  bool fused_gate_up = false;        // one matrix of gate and up
  HuggingFaceWindow window = HuggingFaceWindow::none;
  std::int64_t max_window_layers = 28;
  std::int64_t sliding_window = 4096;  // where it is missing
  std::int64_t window_pattern = 0;     // of the two patterns, where it is missing
  std::string_view rope_scaling{};     // our value, where the file gives no settings of RoPE
  bool scales_full_rope_only = false;  // layers with a window have RoPE without scaling
  double local_theta = 0;              // and this base, where it is missing; 0: that of all
  bool turns_with_window = false;      // where some layers have a window, the others have no RoPE
  bool theta_of_each_layer = false;    // layer_rope_theta; 0 is a layer without RoPE
  bool sinks = false;                  // a learned term of each head's softmax, in every layer
  // Our value of attention_temperature, where the file gives no settings of RoPE, among which
  // llama_4_scaling_beta is; "": queries do not grow with their position.
  std::string_view temperature{};
  std::int64_t no_rope_layer_interval = 0;  // each so many-th layer has no RoPE; 0: all have it
  bool has_experts = false;
  // Defaults of the keys about experts. Without a value the key must be there.
  std::optional<std::int64_t> experts{}, num_experts_per_tok{}, moe_intermediate_size{},
      shared_expert_intermediate_size{};
};

/// A model of text inside one that also sees images: text_config says which.
struct HuggingFaceWrapper {
  std::string_view type;             // of model_type
  std::string_view class_name;       // Gemma3ForConditionalGeneration is that of Gemma3
  std::string_view text_type;        // model_type of text_config where it is missing
  bool tie_word_embeddings = false;  // where it is missing outside and inside
  bool text_may_tie = false;         // that of text_config counts if it is true
};
/// Null for another type.
const HuggingFaceWrapper* hugging_face_wrapper(std::string_view type);
std::span<const HuggingFaceWrapper> hugging_face_wrappers();

/// All families. The families without experts are in the order in which export tries them.
std::span<const HuggingFaceFamily> hugging_face_families();
/// Null for another type.
const HuggingFaceFamily* hugging_face_family(std::string_view type);

// Layers as files of other projects say them one by one, as text of model.layers and layer_pattern.

/// The settings of one layer that a file gives for each layer separately.
struct LayerKeys {
  bool turns = true;
  std::int64_t window = 0;  // 0: none
  bool local = false;       // RoPE of layers with a window
  double base = 0;          // of RoPE, where it is not the model's; 0: the model's
  bool routed = false;      // experts, where the file says it of each layer
  bool operator==(const LayerKeys&) const = default;
};

/// Whether they are of more than one kind.
bool have_kinds(const std::vector<LayerKeys>& layers);
/// "[{name: rope}, {name: no_rope, use_rope: false}]": each kind where it first occurs. Bases of
/// RoPE are numbered in their names: "rope", "rope_base1".
/// `local_rope`: further keys of the layers with RoPE of their own.
std::string write_kinds(const std::vector<LayerKeys>& layers, const std::string& local_rope);
/// "rope*3, no_rope", by the names of write_kinds.
std::string write_pattern(const std::vector<LayerKeys>& layers);

}  // namespace trainctl
