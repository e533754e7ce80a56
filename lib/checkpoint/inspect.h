// Looks into checkpoints without a model: damage, differences of tensors, and differences of
// configurations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "config/schema/config.h"

namespace trainctl {

/// Reads every byte of a checkpoint. Returns what is wrong, each with file, tensor and offset: a
/// manifest that cannot be read, bytes without their hash, a file whose own header disagrees with
/// the manifest. Empty: all is well. `done` is told the bytes read so far, and all. Throws
/// Error{io} where the system cannot read, which says nothing of the checkpoint.
std::vector<std::string> verify_checkpoint(
    const std::filesystem::path& directory,
    const std::function<void(std::int64_t done, std::int64_t all)>& done = {});

struct TensorDifference {
  std::string name;
  std::string value;
  std::string what;            // "only in A", "[4, 2] and [4, 3]", or ""
  std::int64_t differing = 0;  // elements
  double largest = 0;          // absolute difference
};
/// The tensors that differ, in the order of A. Reads both, tensor by tensor. Throws as
/// read_manifest.
std::vector<TensorDifference> compare_checkpoints(const std::filesystem::path& a,
                                                  const std::filesystem::path& b);

// How a configuration differs from that of the run that wrote a checkpoint, and which differences
// a run can go on with.

struct ConfigChange {
  std::string path;
  std::string saved;
  std::string now;
  bool allowed = false;  // the run can go on with it
};

/// Values that differ. The model and the tokenizer must stay; rates, batch, optimizer, layout,
/// precision and length of the run may change. Keys that only concern files, messages and
/// checkpoints are left out.
std::vector<ConfigChange> config_changes(const Config& saved, const Config& now);

/// "model.hidden_size: 768 in the checkpoint, 1024 now", one line for each with `allowed` as given.
std::string list_changes(const std::vector<ConfigChange>& changes, bool allowed);

}  // namespace trainctl
