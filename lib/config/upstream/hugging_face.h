// The config.json of a Hugging Face model, read as values of our sections model and moe. Families:
// gpt2 and those of hugging_face_families.h; missing keys have the values that transformers gives
// them. Of a model that also sees images, the part of the text is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

/// How values of 8 bits are scaled: the rows and columns of the blocks that have one scale each.
struct HuggingFaceBlocks {
  std::int64_t rows = 0, columns = 0;  // 0: one scale for a whole tensor
  friend bool operator==(const HuggingFaceBlocks&, const HuggingFaceBlocks&) = default;
};

struct HuggingFaceConfig {
  std::string model;  // YAML, a map with keys of the model section; usable without problems
  std::string moe;    // the same of the section moe; "" without experts
  // What cannot be read or computed here, each with key, value and rule.
  std::vector<std::string> problems;
};

/// quantization_config of a file alone, as far as it can be read; nothing without one.
std::optional<HuggingFaceBlocks> read_hugging_face_blocks(std::string_view json);

/// Reads both spellings of RoPE: rope_theta with rope_scaling, and rope_parameters. Everything that
/// would change the model's numbers and that no key of ours expresses is a problem.
HuggingFaceConfig read_hugging_face_config(std::string_view json);

}  // namespace trainctl
