// Looks into checkpoints without a model: what `trainctl checkpoint` shows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

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

}  // namespace trainctl
