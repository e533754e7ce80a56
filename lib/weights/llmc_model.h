// llm.c's model file: 256 header numbers, then GPT-2's tensors, kind by kind, each kind for all
// layers. Version 3 holds fp32, version 5 bf16.
#pragma once

#include <filesystem>

#include "base/dtype.h"
#include "base/file.h"
#include "config/schema/model_config.h"
#include "plan/tables/model.h"
#include "weights/stored_weights.h"

namespace trainctl {

class LlmcWeights : public StoredWeights {
 public:
  /// Reads the header and compares the file's size with it. Throws Error{missing_input | bad_data}.
  explicit LlmcWeights(const std::filesystem::path& path);
  void read(const std::string& name, const MatrixBox& box, float* out) const override;

  /// The network that the file describes; every value that the file fixes is set.
  ModelConfig model() const;
  DType dtype() const { return dtype_; }

 private:
  File file_;
  ModelShape shape_;
  std::int64_t padded_vocab_ = 0;
  DType dtype_ = DType::f32;
};

/// Why llm.c's file cannot hold the model, one sentence without a final period; "" if it can.
std::string unknown_to_llmc(const ModelShape& model);

/// Writes the file, whole or not at all, a few MiB at a time. The vocabulary is padded to a
/// multiple of 128 with zeros. Throws Error{io}, and errors of `weights`.
void write_llmc_model(const std::filesystem::path& path, const ModelShape& model,
                      const StoredWeights& weights, DType stored);

}  // namespace trainctl
