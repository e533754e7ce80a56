// The checkpoints of a run: DIR/checkpoints/step-00000500, one directory each; if that name is
// taken, step-00000500.813 with the number of the session that wrote it. A checkpoint is written as
// step-00000500.813.partial until it is complete.
//
// Each start of a run is a session, with a higher number than all earlier sessions. The newest
// checkpoint is that of the highest session, then of the highest step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/schema/config.h"

namespace trainctl {

class CheckpointFolder {
 public:
  /// `run`: the directory of the run.
  explicit CheckpointFolder(const std::filesystem::path& run) : path_(run / "checkpoints") {}

  const std::filesystem::path& path() const { return path_; }
  /// The path of a step's checkpoint, unless another checkpoint has taken it.
  std::filesystem::path of(std::int64_t step) const;
  /// The path at which a step's checkpoint is written before it is complete.
  std::filesystem::path partial(std::int64_t step, std::int64_t session) const;

  struct Entry {
    std::int64_t session = 0;  // session in the manifest; 0 if it has none
    std::int64_t step = 0;     // step in the name
    std::filesystem::path path;
    std::optional<double> val_loss{};  // for to_remove, where its rule asks for it
  };
  /// Directories that are named like checkpoints and have a manifest, the newest first. Only the
  /// sessions are read from the manifests. Throws Error{missing_input | io} if the system cannot
  /// tell what the folder contains, rather than return too few.
  std::vector<Entry> complete() const;
  /// Folders that an earlier process began to write or to remove, and others without a manifest.
  /// Throws like complete().
  std::vector<std::filesystem::path> incomplete() const;
  /// The highest session of the complete checkpoints; 0 without any. Throws like complete().
  std::int64_t highest_session() const;

  /// Renames a complete directory to its final name, which no other entry may have, and brings the
  /// name to stable storage; calls the fence before. Returns the new path. Throws Error{io}, errors
  /// of the fence, and Error{taken} where another session has taken the directory away.
  std::filesystem::path publish(std::int64_t step, const Fence& fence = {}) const;
  /// Renames a checkpoint so that it no longer counts as one; returns the new path, whose files may
  /// then be deleted. Calls the fence before. Throws Error{io} and errors of the fence.
  static std::filesystem::path retire(const std::filesystem::path& checkpoint,
                                      const Fence& fence = {});

 private:
  std::filesystem::path path_;
};

/// Brings the entries of a directory to stable storage. Throws Error{io}.
void sync_directory(const std::filesystem::path& directory);

/// Removes the directory with all files, or the file. Returns the reason of a failure, or "".
std::string remove_directory(const std::filesystem::path& directory);

/// The checkpoints to remove by the options keep, keep_every and keep_best. `all` has the complete
/// checkpoints, the newest first.
std::vector<std::filesystem::path> to_remove(const CheckpointConfig& rule,
                                             const std::vector<CheckpointFolder::Entry>& all);

}  // namespace trainctl
