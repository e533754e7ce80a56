// The lock of a run's directory: two runs never write into one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/file.h"

namespace trainctl {

class DirectoryLock {
 public:
  /// Creates the directory if needed and takes DIR/lock, which names host, process and the
  /// process's start. Throws Error{usage} if a living process of this host has it, or one of
  /// another host, with the way out; Error{io} if the directory cannot be made or written.
  explicit DirectoryLock(const std::filesystem::path& directory);
  /// Gives it back.
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  std::filesystem::path path_;
  std::optional<File> file_;
};

struct LockState {
  enum class Kind {
    unknown,  // there is no lock file
    free,     // given back
    taken,    // by a process that lives, or is of another host
    gone,     // by a process of this host that lives no more
  };
  Kind kind = Kind::unknown;
  long process = 0;
  std::string host;
};
/// Reads DIR/lock without touching it.
LockState lock_state(const std::filesystem::path& directory);

}  // namespace trainctl
