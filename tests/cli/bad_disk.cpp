// A disk that is slow or fails, for a program that is started with LD_PRELOAD.
//   BAD_DISK_PATH=TEXT    files whose path has this part; by default /checkpoints/
//   BAD_DISK_CALLS=LIST   of write, fsync, rename, link, mkdir, open, read (and pread), stat, list
//   (a folder);
//                         by default write,fsync
//   BAD_DISK_SLOW=N       each such call takes N microseconds more
//   BAD_DISK_EVERY=N      every Nth fails
//   BAD_DISK_FROM=N       those from the Nth on fail: BAD_DISK_TIMES=M times, by default once
//   BAD_DISK_ERROR=NAME   EIO (by default), ESTALE, EAGAIN, ENOSPC, EROFS, or short: half of a read
//   or
//                         write is done, without an error
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

std::string_view word(const char* name, const char* other) {
  const char* text = std::getenv(name);
  return text == nullptr ? other : text;
}

long number(const char* name, long other) {
  const char* text = std::getenv(name);
  return text == nullptr ? other : std::atol(text);
}

int error_number() {
  const std::string_view name = word("BAD_DISK_ERROR", "EIO");
  if (name == "ESTALE") return ESTALE;
  if (name == "EAGAIN") return EAGAIN;
  if (name == "ENOSPC") return ENOSPC;
  if (name == "EROFS") return EROFS;
  return EIO;
}

bool is_short() { return word("BAD_DISK_ERROR", "EIO") == "short"; }

bool is_meant(std::string_view call, std::string_view path) {
  if (path.find(word("BAD_DISK_PATH", "/checkpoints/")) == std::string_view::npos) return false;
  std::string_view rest = word("BAD_DISK_CALLS", "write,fsync");
  while (!rest.empty()) {
    const std::size_t end = rest.find(',');
    if (rest.substr(0, end) == call) return true;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return false;
}

/// False if the call must fail; errno then says how.
bool take_turn(std::string_view call, std::string_view path) {
  static const long slow = number("BAD_DISK_SLOW", 0);
  static const long every = number("BAD_DISK_EVERY", 0);
  static const long from = number("BAD_DISK_FROM", 0);
  static const long times = number("BAD_DISK_TIMES", 1);
  static std::atomic<long> calls = 0;
  if (!is_meant(call, path)) return true;
  if (slow > 0) ::usleep(static_cast<useconds_t>(slow));
  const long turn = ++calls;
  const bool fails =
      (every > 0 && turn % every == 0) || (from > 0 && turn >= from && turn < from + times);
  if (fails) errno = error_number();
  return !fails;
}

bool take_turn(std::string_view call, int file) {
  if (file <= 2) return true;
  std::array<char, 40> link{};
  std::array<char, 4096> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", file);
  const ssize_t length = ::readlink(link.data(), path.data(), path.size());
  return length <= 0 || take_turn(call, {path.data(), static_cast<std::size_t>(length)});
}

template <class Call>
Call next_of(const char* name) {
  return reinterpret_cast<Call>(::dlsym(RTLD_NEXT, name));
}

size_t half(size_t count) { return count > 1 ? count / 2 : count; }

}  // namespace

extern "C" ssize_t write(int file, const void* bytes, size_t count) {
  static const auto next = next_of<ssize_t (*)(int, const void*, size_t)>("write");
  if (take_turn("write", file)) return next(file, bytes, count);
  return is_short() ? next(file, bytes, half(count)) : -1;
}

extern "C" ssize_t read(int file, void* bytes, size_t count) {
  static const auto next = next_of<ssize_t (*)(int, void*, size_t)>("read");
  if (take_turn("read", file)) return next(file, bytes, count);
  return is_short() ? next(file, bytes, half(count)) : -1;
}

extern "C" ssize_t pread(int file, void* bytes, size_t count, off_t at) {
  static const auto next = next_of<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  if (take_turn("read", file)) return next(file, bytes, count, at);
  return is_short() ? next(file, bytes, half(count), at) : -1;
}

extern "C" int fsync(int file) {
  static const auto next = next_of<int (*)(int)>("fsync");
  return take_turn("fsync", file) ? next(file) : -1;
}

extern "C" int rename(const char* from, const char* to) {
  static const auto next = next_of<int (*)(const char*, const char*)>("rename");
  return take_turn("rename", to) ? next(from, to) : -1;
}

extern "C" int link(const char* from, const char* to) {
  static const auto next = next_of<int (*)(const char*, const char*)>("link");
  return take_turn("link", to) ? next(from, to) : -1;
}

extern "C" int mkdir(const char* path, mode_t mode) {
  static const auto next = next_of<int (*)(const char*, mode_t)>("mkdir");
  return take_turn("mkdir", path) ? next(path, mode) : -1;
}

extern "C" int open(const char* path, int flags, ...) {
  static const auto next = next_of<int (*)(const char*, int, ...)>("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return take_turn("open", path) ? next(path, flags, mode) : -1;
}

extern "C" int stat(const char* path, struct stat* status) {
  static const auto next = next_of<int (*)(const char*, struct stat*)>("stat");
  return take_turn("stat", path) ? next(path, status) : -1;
}

extern "C" DIR* opendir(const char* path) {
  static const auto next = next_of<DIR* (*)(const char*)>("opendir");
  return take_turn("list", path) ? next(path) : nullptr;
}
