#include "run/directory/old_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "base/file.h"
#include "run/directory/lease_owner.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

/// Its process holds it while it lives, where the file system has such locks.
bool is_held(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  const bool held = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return held;
}

}  // namespace

OldLock read_old_lock(const fs::path& run) {
  using Kind = OldLock::Kind;
  const fs::path path = run / old_lock_name;
  std::error_code failure;
  if (!fs::is_regular_file(fs::symlink_status(path, failure))) return {};
  constexpr std::int64_t most = 4096;
  std::istringstream text(read_beginning(path, most));
  OldLock lock;
  std::string started;
  const bool held = is_held(path);
  if (!(text >> lock.host >> lock.process >> started)) {
    lock.kind = held ? Kind::taken : Kind::free;
    return lock;
  }
  const bool gone =
      !held && lock.host == own_host_name() && start_of_process(lock.process) != started;
  lock.kind = gone ? Kind::gone : Kind::taken;
  return lock;
}

void remove_old_lock(const fs::path& run) { ::unlink((run / old_lock_name).c_str()); }

}  // namespace trainctl
