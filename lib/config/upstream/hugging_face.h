// The config.json of a Hugging Face model, read as values of our sections model and moe. Families:
// dots1, gpt2, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe; missing keys have the
// values that transformers gives them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct HuggingFaceConfig {
  std::string model;  // YAML, a map with keys of the model section; usable without problems
  std::string moe;    // the same of the section moe; "" without experts
  // What cannot be read or computed here, each with key, value and rule.
  std::vector<std::string> problems;
};

/// Reads both spellings of RoPE: rope_theta with rope_scaling, and rope_parameters. Everything that
/// would change the model's numbers and that no key of ours expresses is a problem.
HuggingFaceConfig read_hugging_face_config(std::string_view json);

}  // namespace trainctl
