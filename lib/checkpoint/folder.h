// The checkpoints of a run: DIR/checkpoints/step-00000500, one directory each. What is being
// written has the ending ".partial" until it is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

class CheckpointFolder {
 public:
  /// `run`: the directory of the run.
  explicit CheckpointFolder(const std::filesystem::path& run) : path_(run / "checkpoints") {}

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path of(std::int64_t step) const;
  /// Where the checkpoint of a step is written.
  std::filesystem::path partial(std::int64_t step) const;

  struct Entry {
    std::int64_t step = 0;
    std::filesystem::path path;
  };
  /// Directories that are named like checkpoints and have a manifest, the newest first. Nothing of
  /// them is read.
  std::vector<Entry> complete() const;
  /// What an earlier process began to write or to remove, and others without a manifest.
  std::vector<std::filesystem::path> incomplete() const;

  /// Gives a complete directory its name, and brings that to stable storage. Throws Error{io}.
  void publish(std::int64_t step) const;
  /// The checkpoint of a step stops being one; returns the directory, whose files may now go.
  /// Throws Error{io}.
  std::filesystem::path retire(std::int64_t step) const;

 private:
  std::filesystem::path path_;
};

/// Brings the entries of a directory to stable storage. Throws Error{io}.
void sync_directory(const std::filesystem::path& directory);

/// Removes the directory with all files. Returns why it could not, or "".
std::string remove_directory(const std::filesystem::path& directory);

/// Which checkpoints a run keeps.
struct KeepRule {
  std::int64_t last = 2;   // newest ones; 0: all
  std::int64_t every = 0;  // also those whose step is a multiple; 0: none
  bool best = false;       // also that with the lowest validation loss
};
struct Kept {
  std::int64_t step = 0;
  std::optional<double> val_loss;
};
/// The steps to remove. `all` are the complete checkpoints in any order.
std::vector<std::int64_t> steps_to_remove(const KeepRule& rule, std::vector<Kept> all);

}  // namespace trainctl
