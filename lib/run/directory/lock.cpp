#include "run/directory/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/whole_file.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

struct Owner {
  std::string host;
  long process = 0;
  std::string started;  // clock ticks since the boot: a later process of this number has another
  std::string to_string() const {
    return host + " " + std::to_string(process) + " " + started + "\n";
  }
};

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Field 22 of /proc/PID/stat; empty if there is no such process.
std::string start_of(long process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos) return "";
  std::istringstream fields(text.substr(name_end + 2));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return field;
}

std::optional<Owner> read_owner(const fs::path& path) {
  std::ifstream file(path);
  Owner owner;
  if (!(file >> owner.host >> owner.process >> owner.started)) return std::nullopt;
  return owner;
}

}  // namespace

DirectoryLock::DirectoryLock(const fs::path& directory) : path_(directory / "lock") {
  std::error_code failure;
  fs::create_directories(directory, failure);
  require(!failure, ExitCode::io,
          "cannot create the output folder " + directory.string() + ": " + failure.message());
  // Held while the process lives, where the file system has such locks: of two that start at the
  // same time, one gets it.
  File file = File::open_to_append(path_);
  const bool free = ::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  const std::optional<Owner> owner = read_owner(path_);
  const bool here = owner && owner->host == host_name();
  const bool alive =
      here && start_of(owner->process) == owner->started && owner->process != getpid();
  require(free && !alive, ExitCode::usage,
          "the output folder " + directory.string() + " is in use by process " +
              (owner ? std::to_string(owner->process) : "?") +
              " on this host; wait for it, or set "
              "another output.dir");
  require(!owner || here, ExitCode::usage,
          "the output folder " + directory.string() + " is locked by process " +
              (owner ? std::to_string(owner->process) + " on host " + owner->host : "?") +
              "; if that process has ended, remove " + path_.string() + " and start again");
  require(::ftruncate(file.descriptor(), 0) == 0, ExitCode::io, "cannot write " + path_.string());
  const Owner self{host_name(), getpid(), start_of(getpid())};
  file.write(self.to_string());
  file_ = std::move(file);
}

DirectoryLock::~DirectoryLock() {
  // The file stays: one that was removed could be locked by two.
  [[maybe_unused]] const int failure = ::ftruncate(file_->descriptor(), 0);
}

LockState lock_state(const fs::path& directory) {
  using Kind = LockState::Kind;
  std::error_code failure;
  if (!fs::exists(directory / "lock", failure)) return {};
  const std::optional<Owner> owner = read_owner(directory / "lock");
  if (!owner) return {Kind::free, 0, ""};
  const bool gone = owner->host == host_name() && start_of(owner->process) != owner->started;
  return {gone ? Kind::gone : Kind::taken, owner->process, owner->host};
}

}  // namespace trainctl
