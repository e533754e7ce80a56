// The file `lock` in the directory of a run, with which earlier versions kept others out.
#pragma once

#include <filesystem>
#include <string>

namespace trainctl {

inline constexpr const char* old_lock_name = "lock";

struct OldLock {
  enum class Kind {
    none,   // there is no such file
    free,   // given back
    taken,  // by a process that lives, or is of another host
    gone,   // by a process of this host that lives no more
  };
  Kind kind = Kind::none;
  long process = 0;
  std::string host;
};
/// Changes nothing.
OldLock read_old_lock(const std::filesystem::path& run);
/// Once the lease is taken.
void remove_old_lock(const std::filesystem::path& run);

}  // namespace trainctl
