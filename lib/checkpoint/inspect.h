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

/// Reads every byte of a checkpoint. Returns the problems, each with file, tensor and offset: a
/// manifest that cannot be read, bytes whose hash differs, a file whose own header disagrees with
/// the manifest. Empty if the checkpoint is intact. `done` is called with the bytes read so far and
/// the total. Throws Error{io} where the system cannot read: the checkpoint may then be intact.
std::vector<std::string> verify_checkpoint(
    const std::filesystem::path& directory,
    const std::function<void(std::int64_t done, std::int64_t all)>& done = {});

struct TensorDifference {
  std::string name;
  std::string value;
  std::string what;            // "only in A", "[4, 2] and [4, 3]", or "" if only values differ
  std::int64_t differing = 0;  // number of elements
  double largest = 0;          // largest absolute difference
};
/// The tensors that differ, in the order of A. Reads both, tensor by tensor. Throws as
/// read_manifest.
std::vector<TensorDifference> compare_checkpoints(const std::filesystem::path& a,
                                                  const std::filesystem::path& b);

// The changes of a configuration since a run wrote a checkpoint, and whether a run may continue
// with them.

/// The values that differ, "model.hidden_size: 768 in the checkpoint, 1024 now", one line for each:
/// those with which the run may continue, and the others. The model and the tokenizer must stay the
/// same; rates, batch, optimizer, layout, precision and length of the run may change. Keys that
/// only concern files, messages and checkpoints are left out.
std::string allowed_changes(const Config& saved, const Config& now);
std::string refused_changes(const Config& saved, const Config& now);

}  // namespace trainctl
