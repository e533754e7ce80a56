// The checkpoints of a run: DIR/checkpoints/step-00000500, one directory each; where that name was
// taken, step-00000500.813 with the number of the session that wrote it. What is being written is
// step-00000500.813.partial until it is complete.
//
// A start of a run is a session; each has a higher number than those before. The newest checkpoint
// is that of the highest session, then of the highest step.
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
  /// The name of a step's checkpoint, where no other had it.
  std::filesystem::path of(std::int64_t step) const;
  /// Where the checkpoint of a step is written.
  std::filesystem::path partial(std::int64_t step, std::int64_t session) const;

  struct Entry {
    std::int64_t session = 0;  // as far as the manifest says
    std::int64_t step = 0;     // by the name
    std::filesystem::path path;
    std::optional<double> val_loss{};  // for to_remove, where its rule asks for it
  };
  /// Directories that are named like checkpoints and have a manifest, the newest first. Of the
  /// manifests only the sessions are read. Throws Error{missing_input | io} if the system does not
  /// say what is there: then it is not known that there is none.
  std::vector<Entry> complete() const;
  /// Folders that an earlier process began to write or to remove, and others without a manifest.
  /// Throws the same.
  std::vector<std::filesystem::path> incomplete() const;
  /// The highest session of the complete checkpoints; 0 without any. Throws the same.
  std::int64_t highest_session() const;

  /// Gives a complete directory its name, which nothing else may have, and brings that to stable
  /// storage; asks the fence before. Returns the name. Throws Error{io}, what the fence throws, and
  /// Error{taken} where another session has taken the directory away.
  std::filesystem::path publish(std::int64_t step, const Fence& fence = {}) const;
  /// A checkpoint stops being one; returns the directory, whose files may now go. Asks the fence
  /// before. Throws Error{io} and what the fence throws.
  static std::filesystem::path retire(const std::filesystem::path& checkpoint,
                                      const Fence& fence = {});

 private:
  std::filesystem::path path_;
};

/// Brings the entries of a directory to stable storage. Throws Error{io}.
void sync_directory(const std::filesystem::path& directory);

/// Removes the directory with all files, or the file. Returns why it could not, or "".
std::string remove_directory(const std::filesystem::path& directory);

/// The checkpoints to remove by `keep`, `keep_every` and `keep_best` of the section. `all` are the
/// complete ones, the newest first.
std::vector<std::filesystem::path> to_remove(const CheckpointConfig& rule,
                                             const std::vector<CheckpointFolder::Entry>& all);

}  // namespace trainctl
