// A disk that is slow or fails, for a program that is started with LD_PRELOAD: what it writes below
// a folder named "checkpoints".
//   BAD_DISK_SLOW=N   each write takes N microseconds more
//   BAD_DISK_FAIL=N   every Nth write or fsync fails with EIO
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

long option(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

bool is_checkpoint(int file) {
  std::array<char, 40> link{};
  std::array<char, 4096> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", file);
  const ssize_t length = ::readlink(link.data(), path.data(), path.size());
  if (length <= 0) return false;
  const std::string_view text(path.data(), static_cast<std::size_t>(length));
  return text.find("/checkpoints/") != std::string_view::npos;
}

/// False if the call must fail.
bool take_turn(int file) {
  static const long slow = option("BAD_DISK_SLOW");
  static const long fail = option("BAD_DISK_FAIL");
  static std::atomic<long> calls = 0;
  if (!is_checkpoint(file)) return true;
  if (slow > 0) ::usleep(static_cast<useconds_t>(slow));
  if (fail == 0 || ++calls % fail != 0) return true;
  errno = EIO;
  return false;
}

}  // namespace

extern "C" ssize_t write(int file, const void* bytes, size_t count) {
  using Call = ssize_t (*)(int, const void*, size_t);
  static const auto next = reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "write"));
  return take_turn(file) ? next(file, bytes, count) : -1;
}

extern "C" int fsync(int file) {
  using Call = int (*)(int);
  static const auto next = reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "fsync"));
  return take_turn(file) ? next(file) : -1;
}
