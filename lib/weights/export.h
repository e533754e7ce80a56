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

/// How a model directory is written.
struct ModelFiles {
  DType stored = DType::f32;     // or bf16
  std::int64_t shard_bytes = 0;  // most bytes of tensors in one file; 0: all in one
  SpecialTokens tokens{};
  std::string type{};            // model_type of what it started from, if that has it; "" is none
  const Fence* fence = nullptr;  // of the directory, if it has one
};

/// Writes the files into `directory`, each whole or not at all, config.json last. Reads tensor by
/// tensor and holds one in its stored type; `work` serves as for write_safetensors. A model that
/// transformers does not have (unknown_to_hugging_face) gets no config.json. Throws Error{io}, and
/// what the store throws.
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
