// The weights of a Hugging Face model directory by our names.
#pragma once

#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/tables/model.h"
#include "weights/safetensors.h"
#include "weights/scaled_tensor.h"
#include "weights/stored_weights.h"

namespace trainctl {

class HuggingFaceWeights : public StoredWeights {
 public:
  /// Opens the directory's files and compares all of their tensors with the model. Types: fp32,
  /// bf16, fp16, and F8_E4M3 with the scales that quantization_config of config.json describes. Of
  /// a model that sees images the text's part is read. Of a tied model the embedding may be there
  /// as the head, or a second time as it with the same values. Throws Error{missing_input |
  /// bad_data}, which names every tensor that is missing, not the model's, or of another shape or
  /// type.
  HuggingFaceWeights(const std::filesystem::path& directory, const ModelShape& model);
  void read(const std::string& name, const MatrixBox& box, float* out) const override;

 private:
  /// Where rows of one of our parameters lie.
  struct Part {
    ScaledTensor tensor{};
    std::int64_t begin = 0, end = 0;  // rows of ours
    std::int64_t first = 0;           // the first of them among the tensor's output rows
    bool transposed = false;
  };
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, std::vector<Part>> parts_;
};

}  // namespace trainctl
