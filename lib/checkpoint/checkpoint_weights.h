// The parameters of a checkpoint as stored weights: for export, and for `generate` in any layout.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "plan/tables/model.h"
#include "weights/stored_weights.h"

namespace trainctl {

class CheckpointWeights : public StoredWeights {
 public:
  /// Checks the manifest and that each parameter of `model` is there. `averages`: reads the average
  /// of weights instead. Throws Error{missing_input | bad_data}.
  CheckpointWeights(const std::filesystem::path& directory, const ModelShape& model, bool averages);
  ~CheckpointWeights() override;
  /// Not thread-safe: reads go through one buffer.
  void read(const std::string& name, const MatrixBox& box, float* out) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Its weights: of a checkpoint, else of the safetensors files, else of the run's newest
/// checkpoint. `averages`: the average that a run kept of them (optimizer.ema_decay), which only
/// checkpoints have. Throws Error{missing_input | bad_data}.
std::unique_ptr<StoredWeights> open_weights(const std::filesystem::path& directory,
                                            const ModelShape& model, bool averages = false);

}  // namespace trainctl
