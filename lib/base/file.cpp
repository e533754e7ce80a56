#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace trainctl {

namespace {

[[noreturn]] void fail(ExitCode code, const std::string& what, const std::filesystem::path& path) {
  throw Error(code, what + " " + path.string() + ": " + std::generic_category().message(errno));
}

struct stat status_of(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail(ExitCode::missing_input, "cannot examine", path);
  return status;
}

}  // namespace

File::File(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

File File::open_to_read(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(ExitCode::missing_input, "cannot open", path);
  File file(path, descriptor);
  require(!S_ISDIR(status_of(descriptor, path).st_mode), ExitCode::missing_input,
          "cannot read " + path.string() + ": it is a directory");
  return file;
}

File File::create(const std::filesystem::path& path, unsigned permissions) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, permissions);
  if (descriptor < 0) fail(ExitCode::io, "cannot create", path);
  return File(path, descriptor);
}

File File::open_to_append(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) fail(ExitCode::io, "cannot write", path);
  return File(path, descriptor);
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::int64_t File::size() const { return status_of(descriptor_, path_).st_size; }

std::int64_t File::read(std::span<char> out) {
  ssize_t got = 0;
  do {
    got = ::read(descriptor_, out.data(), out.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) fail(ExitCode::missing_input, "cannot read", path_);
  return got;
}

bool File::try_read_at(std::int64_t offset, std::span<char> out) const noexcept {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    offset += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

void File::read_at(std::int64_t offset, std::span<char> out) const {
  if (try_read_at(offset, out)) return;
  throw Error(ExitCode::bad_data, path_.string() + ": cannot read " + std::to_string(out.size()) +
                                      " bytes at offset " + std::to_string(offset) +
                                      "; the file now has " + std::to_string(size()) + " bytes");
}

void File::write(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EINVAL && past_cache_) {
      past_cache_ = false;
      const int flags = ::fcntl(descriptor_, F_GETFL);
      if (flags >= 0 && ::fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT) == 0) continue;
    }
    if (done < 0) fail(ExitCode::io, "cannot write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void File::append_whole(std::span<const char> bytes) {
  const std::int64_t before = size();
  try {
    write(bytes);
  } catch (const Error&) {
    [[maybe_unused]] const int cut = ::ftruncate(descriptor_, before);
    throw;
  }
}

void File::write_past_cache() {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  past_cache_ = flags >= 0 && ::fcntl(descriptor_, F_SETFL, flags | O_DIRECT) == 0;
}

void File::write_at(std::int64_t offset, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(ExitCode::io, "cannot write", path_);
    offset += done;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void File::sync() {
  if (::fsync(descriptor_) != 0) fail(ExitCode::io, "cannot write", path_);
}

Mapping::Mapping(const File& file) {
  const auto size = static_cast<std::size_t>(file.size());
  if (size == 0) return;
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (start == MAP_FAILED) fail(ExitCode::missing_input, "cannot map", file.path());
  start_ = static_cast<const std::byte*>(start);
  size_ = size;
}

Mapping::~Mapping() {
  if (start_ != nullptr) ::munmap(const_cast<std::byte*>(start_), size_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : start_(std::exchange(other.start_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(size_, other.size_);
  return *this;
}

void Mapping::release_pages() const noexcept {
  if (start_ != nullptr) ::madvise(const_cast<std::byte*>(start_), size_, MADV_DONTNEED);
}

}  // namespace trainctl
