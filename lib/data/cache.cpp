// Tokenised text, kept in the user's cache folder: one folder per (text, tokenizer), put in place
// by a rename, so that it is complete or absent.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/temporary_folder.h"
#include "data/build.h"
#include "data/text_reader.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

/// Part of the key: to be raised whenever the same text would give other tokens.
constexpr std::string_view cache_version = "2";

/// Path, size and time of the last change.
std::uint64_t hash_file(const fs::path& path, std::uint64_t state) {
  std::error_code failure;
  const std::string name = fs::canonical(path, failure).string();
  struct stat status {};
  require(!failure && ::stat(name.c_str(), &status) == 0, ExitCode::missing_input,
          "cannot read " + path.string());
  state = fnv1a(name, state);
  state = fnv1a("|" + std::to_string(status.st_size), state);
  state = fnv1a("|" + std::to_string(status.st_mtim.tv_sec), state);
  return fnv1a("|" + std::to_string(status.st_mtim.tv_nsec) + "\n", state);
}

std::string key_of(const fs::path& text, const Tokenizer& tokenizer) {
  std::uint64_t state = fnv1a(cache_version);
  state = fnv1a(tokenizer.specification() + "\n", state);
  for (const fs::path& file : tokenizer.files()) state = hash_file(file, state);
  for (const InputFile& file : list_inputs({text})) state = hash_file(file.path, state);
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(state));
  return digits.data();
}

/// Whether `folder` is there, or can be made, and belongs to this user.
bool is_usable(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder.parent_path(), failure);
  ::mkdir(folder.c_str(), 0700);
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid() && ::access(folder.c_str(), W_OK) == 0;
}

fs::path default_cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    if (is_usable(fs::path(cache) / "trainctl")) return fs::path(cache) / "trainctl";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    const fs::path folder = fs::path(home) / ".cache" / "trainctl";
    if (is_usable(folder)) return folder;
  }
  const fs::path folder = "/tmp/trainctl-" + std::to_string(::geteuid());
  require(is_usable(folder), ExitCode::io,
          "no cache folder for tokenised text: none of $XDG_CACHE_HOME/trainctl, "
          "$HOME/.cache/trainctl and " +
              folder.string() + " can be written");
  return folder;
}

/// Held while one process tokenises, so that the others wait for the result instead of repeating
/// the work. The system releases it with the process. Where locks do not work the work is merely
/// done twice.
class BuildLock {
 public:
  explicit BuildLock(const fs::path& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (descriptor_ >= 0) wait(path);
  }
  ~BuildLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

 private:
  /// Looks again and again, so that those who wait for this process see that it still lives.
  void wait(const fs::path& path) const {
    constexpr std::chrono::milliseconds pause{50};
    constexpr int silent_looks = 20;
    for (int look = 0; ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0; ++look) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      if (look == silent_looks) {
        log_info("waiting: another rank or start tokenises the same text, and holds " +
                 path.string());
      }
      std::this_thread::sleep_for(pause);
    }
  }

  int descriptor_;
};

bool is_complete(const fs::path& prefix) {
  return kind_of_file(prefix.string() + ".bin") != FileKind::none &&
         kind_of_file(prefix.string() + ".idx") != FileKind::none;
}

}  // namespace

bool is_text_input(const fs::path& path) {
  if (path.extension() == ".bin" || path.extension() == ".idx") return false;
  return !is_complete(path) && kind_of_file(path) != FileKind::none;
}

fs::path cached_token_file(const fs::path& text, const Tokenizer& tokenizer,
                           const fs::path& cache_dir, int threads) {
  const std::string key = key_of(text, tokenizer);
  const fs::path root = cache_dir.empty() ? default_cache_folder() : cache_dir;
  std::error_code failure;
  fs::create_directories(root, failure);
  require(!failure, ExitCode::io, "cannot create " + root.string() + ": " + failure.message());
  const fs::path folder = root / (fs::weakly_canonical(text).stem().string() + "-" + key);
  const fs::path prefix = folder / "tokens";
  if (is_complete(prefix)) return prefix;

  const BuildLock lock(folder.string() + ".lock");
  if (is_complete(prefix)) return prefix;
  log_info("tokenising " + text.string() + " (" + tokenizer.specification() + ") into " +
           folder.string());
  const TemporaryFolder temporary(folder.string() + ".tmp");
  BuildOptions options;
  options.inputs = {text};
  options.output = temporary.path() / "tokens";
  options.threads = threads;
  build_token_file(options, tokenizer);
  fs::rename(temporary.path(), folder, failure);
  require(!failure || is_complete(prefix), ExitCode::io,
          "cannot write " + folder.string() + ": " + failure.message());
  return prefix;
}

}  // namespace trainctl
