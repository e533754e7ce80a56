#include "config/upstream/hugging_face_families.h"

namespace trainctl {
namespace {

using Bias = HuggingFaceBias;
using Window = HuggingFaceWindow;

constexpr HuggingFaceFamily families[] = {
    {.type = "dots1", .class_name = "Dots1", .sizes = {152'064, 4608, 10'944, 62, 32, 32, 2048}, .bias = Bias::refused,
     .qk_norms = true, .window = Window::later_layers, .max_window_layers = 62,
     .has_experts = true, .moe_intermediate_size = 1408},
    {.type = "llama", .class_name = "Llama", .sizes = {32'000, 4096, 11'008, 32, 32, 0, 2048}, .bias = Bias::refused,
     .mlp_bias = true},
    {.type = "mistral", .class_name = "Mistral", .sizes = {32'000, 4096, 14'336, 32, 32, 8, 131'072}, .window = Window::all},
    {.type = "mixtral", .class_name = "Mixtral", .sizes = {32'000, 4096, 14'336, 32, 32, 8, 131'072}, .rms_norm_eps = 1e-5,
     .rope_theta = 1'000'000, .window = Window::all_if_given, .has_experts = true, .experts = 8,
     .num_experts_per_tok = 2},
    {.type = "qwen2", .class_name = "Qwen2", .sizes = {151'936, 4096, 22'016, 32, 32, 32, 32'768}, .bias = Bias::always,
     .window = Window::if_asked},
    {.type = "qwen2_moe", .class_name = "Qwen2Moe", .sizes = {151'936, 2048, 5632, 24, 16, 16, 32'768}, .bias = Bias::by_key,
     .window = Window::if_asked_last, .has_experts = true, .experts = 60,
     .num_experts_per_tok = 4, .moe_intermediate_size = 1408,
     .shared_expert_intermediate_size = 5632},
    {.type = "qwen3", .class_name = "Qwen3", .sizes = {151'936, 4096, 22'016, 32, 32, 32, 32'768}, .head_dim = 128,
     .bias = Bias::refused, .qk_norms = true, .window = Window::if_asked},
    {.type = "qwen3_moe", .class_name = "Qwen3Moe", .sizes = {151'936, 2048, 6144, 24, 32, 4, 32'768}, .bias = Bias::refused,
     .qk_norms = true, .window = Window::if_asked_all, .has_experts = true, .experts = 128,
     .num_experts_per_tok = 8, .moe_intermediate_size = 768},
    {.type = "smollm3", .class_name = "SmolLM3", .sizes = {128'256, 2048, 11'008, 36, 16, 4, 32'768}, .rope_theta = 2'000'000,
     .tie_word_embeddings = true, .bias = Bias::refused, .mlp_bias = true,
     .window = Window::without_rope, .no_rope_layer_interval = 4},
};

}  // namespace

std::span<const HuggingFaceFamily> hugging_face_families() { return families; }

const HuggingFaceFamily* hugging_face_family(std::string_view type) {
  for (const HuggingFaceFamily& row : families) {
    if (type == row.type) return &row;
  }
  return nullptr;
}

}  // namespace trainctl
