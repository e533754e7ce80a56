// The families of Hugging Face that have rotary positions, one row each: what their class in
// transformers 5 takes for keys that a config.json leaves out, and which forms they have. Reading
// and writing ask for these properties, never for a family.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trainctl {

/// Which biases of q, k and v there are.
enum class HuggingFaceBias : std::uint8_t {
  none,     // and no key says otherwise
  refused,  // attention_bias asks for all four, which are not built
  always,
  by_key,  // qkv_bias, true where it is missing
};

/// Which layers have the window that a config.json names.
enum class HuggingFaceWindow : std::uint8_t {
  none,           // of the family
  all,            // every layer; a missing key is a window
  all_if_given,   // the same; a missing key is none
  later_layers,   // those from max_window_layers on, or as layer_types says
  if_asked,       // with use_sliding_window: later_layers
  if_asked_all,   // with use_sliding_window: every layer
  if_asked_last,  // with use_sliding_window: some of them, whichever max_window_layers names
  without_rope,   // with use_sliding_window: those without RoPE
};

/// Whether the family has the window only with use_sliding_window.
constexpr bool asks_for_window(HuggingFaceWindow rule) {
  return rule != HuggingFaceWindow::none && rule != HuggingFaceWindow::all &&
         rule != HuggingFaceWindow::all_if_given && rule != HuggingFaceWindow::later_layers;
}

struct HuggingFaceFamily {
  std::string_view type;   // of model_type
  std::string_view class_name;  // LlamaForCausalLM is that of Llama
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
  HuggingFaceBias bias = HuggingFaceBias::none;
  bool mlp_bias = false;  // a key of this name asks for biases, which are not built
  bool qk_norms = false;
  HuggingFaceWindow window = HuggingFaceWindow::none;
  std::int64_t max_window_layers = 28;
  std::int64_t no_rope_layer_interval = 0;  // each so many-th layer has no RoPE; 0: all have it
  bool has_experts = false;
  // Of experts; nothing: the key must be there.
  std::optional<std::int64_t> experts{}, num_experts_per_tok{}, moe_intermediate_size{},
      shared_expert_intermediate_size{};
};

std::span<const HuggingFaceFamily> hugging_face_families();
/// Null for another type.
const HuggingFaceFamily* hugging_face_family(std::string_view type);

}  // namespace trainctl
