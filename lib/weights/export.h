// A model in the form that Hugging Face's transformers loads: safetensors, config.json and
// generation_config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/file.h"
#include "device/tensor.h"
#include "plan/tables/model.h"
#include "weights/hugging_face.h"
#include "weights/stored_weights.h"

namespace trainctl {

/// Options for the files of a model directory.
struct ModelFiles {
  DType stored = DType::f32;     // or bf16
  std::int64_t shard_bytes = 0;  // most bytes of tensors in one file; one file for all if 0
  SpecialTokens tokens{};
  std::string type{};            // model_type of the original model, if it fits this one; else ""
  const Fence* fence = nullptr;  // fence of the directory; null if it has none
};

/// Writes the files into `directory`, each whole or not at all, config.json last. Reads tensor by
/// tensor and holds one in its stored type; `work` serves as for write_safetensors. A model that
/// transformers does not have (unknown_to_hugging_face) gets no config.json. Throws Error{io}, and
/// errors of `weights`.
void write_model(const std::filesystem::path& directory, const ModelShape& model,
                 const StoredWeights& weights, const ModelFiles& files,
                 std::span<std::byte> work = {});

/// Weights in memory: `parameter` gives a whole host fp32 parameter by our name.
class HeldWeights : public StoredWeights {
 public:
  using Source = std::function<Tensor(const std::string& name)>;
  explicit HeldWeights(Source parameter) : parameter_(std::move(parameter)) {}
  void read(const std::string& name, const MatrixBox& box, float* out) const override;

 private:
  Source parameter_;
};

}  // namespace trainctl
