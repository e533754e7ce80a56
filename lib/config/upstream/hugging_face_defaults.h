// What keys mean that a config.json leaves out: the defaults of the families' classes in
// transformers 5.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainctl {

/// Sizes of a family with rotary positions; nothing: the class has no value that works either.
struct HuggingFaceDefaults {
  const char* type;  // of model_type
  std::int64_t vocab_size, hidden_size, intermediate_size;
  std::int64_t num_hidden_layers, num_attention_heads;
  std::int64_t num_key_value_heads;  // 0: as many as query heads
  std::int64_t max_position_embeddings;
  std::optional<std::int64_t> experts{}, num_experts_per_tok{}, moe_intermediate_size{},
      shared_expert_intermediate_size{};
};

inline constexpr HuggingFaceDefaults hugging_face_defaults[] = {
    {"llama", 32'000, 4096, 11'008, 32, 32, 0, 2048},
    {"mistral", 32'000, 4096, 14'336, 32, 32, 8, 131'072},
    {"mixtral", 32'000, 4096, 14'336, 32, 32, 8, 131'072, 8, 2},
    {"qwen2", 151'936, 4096, 22'016, 32, 32, 32, 32'768},
    {"qwen2_moe", 151'936, 2048, 5632, 24, 16, 16, 32'768, 60, 4, 1408, 5632},
    {"qwen3", 151'936, 4096, 22'016, 32, 32, 32, 32'768},
    {"qwen3_moe", 151'936, 2048, 6144, 24, 32, 4, 32'768, 128, 8, 768},
    {"dots1", 152'064, 4608, 10'944, 62, 32, 32, 2048, {}, {}, 1408},
};

/// Null for another type.
inline const HuggingFaceDefaults* hugging_face_defaults_of(const std::string& type) {
  for (const HuggingFaceDefaults& row : hugging_face_defaults) {
    if (type == row.type) return &row;
  }
  return nullptr;
}

}  // namespace trainctl
