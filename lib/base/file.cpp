#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace trainctl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto patience = std::chrono::seconds(10);  // retries of a failure that may pass
constexpr auto silence = std::chrono::seconds(1);    // time of retries before the first message
constexpr auto first_pause = std::chrono::milliseconds(10);
constexpr auto longest_pause = std::chrono::milliseconds(1000);
constexpr int pipe_milliseconds = 3000;  // wait for the first bytes of a pipe

/// Errors that concern the file, not the system.
constexpr std::array of_the_file{ENOENT, ENOTDIR, EACCES, EPERM,       ELOOP,
                                 EISDIR, ENXIO,   EINVAL, ENAMETOOLONG};

/// Errors of a disk, a server or the network between, which may pass.
constexpr std::array passing{EIO,          ESTALE,   EAGAIN,    EBUSY,      ETIMEDOUT,   ENOLCK,
                             EREMOTEIO,    ENETDOWN, ENETRESET, ECONNRESET, ENETUNREACH, EHOSTDOWN,
                             EHOSTUNREACH, ENOTCONN, ESHUTDOWN, ENODATA,    ENOMEM,      ECOMM};

bool may_pass(int error) {
  return std::find(passing.begin(), passing.end(), error) != passing.end();
}

std::string words_of(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(ExitCode code, const std::string& what, const std::filesystem::path& path) {
  throw Error(code, what + " " + path.string() + ": " + words_of(errno));
}

/// Throws an Error for errno after a failed read.
[[noreturn]] void fail_to_read(const std::string& what, const std::filesystem::path& path) {
  const bool of_file =
      std::find(of_the_file.begin(), of_the_file.end(), errno) != of_the_file.end();
  if (!may_pass(errno)) fail(of_file ? ExitCode::missing_input : ExitCode::io, what, path);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience).count();
  throw Error(ExitCode::io, what + " " + path.string() + ": " + words_of(errno) + ", for " +
                                std::to_string(seconds) + " s");
}

void tell_retry(const std::filesystem::path& path, int error) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience).count();
  log_warning("cannot read " + path.string() + ": " + words_of(error) + "; trying again for " +
              std::to_string(seconds) + " s");
}

/// Repeats `call`, which reads from `path`, until it returns at least 0 or fails with an error that
/// will not pass, which is then in errno. Logs a retry that takes longer than a second.
template <class Call>
auto patiently(const std::filesystem::path& path, const Call& call) {
  const Clock::time_point begin = Clock::now();
  auto pause = first_pause;
  bool told = false;
  while (true) {
    const auto got = call();
    if (got >= 0) return got;
    const int error = errno;
    if (error == EINTR) continue;
    const auto waited = Clock::now() - begin;
    if (!may_pass(error) || waited >= patience) return got;
    if (!told && waited >= silence) {
      told = true;
      tell_retry(path, error);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, longest_pause);
  }
}

struct stat status_of(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (patiently(path, [&] { return ::fstat(descriptor, &status); }) != 0) {
    fail_to_read("cannot examine", path);
  }
  return status;
}

/// Whether this is a shell's pipe without a name, whose writer already exists.
bool is_nameless_pipe(int descriptor) {
  std::array<char, 16> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  return length > 0 && std::string_view(target.data(), target.size()).starts_with("pipe:");
}

/// Waits for bytes: a named pipe may have no writer, and nobody may type at a terminal.
void wait_for_bytes(int descriptor, const std::filesystem::path& path) {
  pollfd look{descriptor, POLLIN, 0};
  const bool ready = is_nameless_pipe(descriptor) || ::poll(&look, 1, pipe_milliseconds) > 0;
  require(ready, ExitCode::missing_input,
          "cannot read " + path.string() + ": it is a pipe or a device, and nothing came from it " +
              "within " + std::to_string(pipe_milliseconds / 1000) + " s");
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags >= 0) ::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK);
}

}  // namespace

File::File(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

File File::open_to_read(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  const int descriptor =
      patiently(path, [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor < 0) fail_to_read("cannot open", path);
  File file(path, descriptor);
  const mode_t mode = status_of(descriptor, path).st_mode;
  require(!S_ISDIR(mode), ExitCode::missing_input,
          "cannot read " + path.string() + ": it is a directory");
  if (!S_ISREG(mode)) wait_for_bytes(descriptor, path);
  return file;
}

File File::create(const std::filesystem::path& path, unsigned permissions) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, permissions);
  if (descriptor < 0) fail(ExitCode::io, "cannot create", path);
  return File(path, descriptor);
}

namespace {
int open_at_end(const std::filesystem::path& path, int access) {
  const int file = ::open(path.c_str(), access | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) fail(ExitCode::io, "cannot write", path);
  return file;
}
}  // namespace

File File::open_to_append(const std::filesystem::path& path) {
  return File(path, open_at_end(path, O_WRONLY));
}
File File::open_to_extend(const std::filesystem::path& path) {
  return File(path, open_at_end(path, O_RDWR));
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

bool File::is_named(const std::filesystem::path& name) const {
  struct stat open {};
  struct stat named {};
  return ::fstat(descriptor_, &open) == 0 && ::stat(name.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

std::int64_t File::read(std::span<char> out) {
  const ssize_t got = patiently(path_, [&] { return ::read(descriptor_, out.data(), out.size()); });
  if (got < 0) fail_to_read("cannot read", path_);
  return got;
}

int File::read_exactly(std::int64_t offset, std::span<char> out) const noexcept {
  while (!out.empty()) {
    const ssize_t got = patiently(path_, [&] {
      const ssize_t now = ::pread(descriptor_, out.data(), out.size(), offset);
      // A server may still know the file's name when its handle is stale.
      if (now < 0 && errno == ESTALE) {
        const int fresh = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fresh >= 0) ::dup3(fresh, descriptor_, O_CLOEXEC);
        if (fresh >= 0) ::close(fresh);
        errno = ESTALE;
      }
      return now;
    });
    if (got < 0) return errno;
    if (got == 0) return ends_early;
    offset += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return 0;
}

bool File::try_read_at(std::int64_t offset, std::span<char> out) const noexcept {
  return read_exactly(offset, out) == 0;
}

void File::read_at(std::int64_t offset, std::span<char> out) const {
  const int result = read_exactly(offset, out);
  if (result == 0) return;
  const std::string what =
      "cannot read " + std::to_string(out.size()) + " bytes at offset " + std::to_string(offset);
  if (result != ends_early) {
    errno = result;
    fail_to_read(what + " of", path_);
  }
  throw Error(ExitCode::bad_data, path_.string() + ": " + what + "; the file now has " +
                                      std::to_string(size()) + " bytes");
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

FileKind kind_of_file(const std::filesystem::path& path) {
  struct stat status {};
  if (patiently(path, [&] { return ::stat(path.c_str(), &status); }) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return FileKind::none;
    fail_to_read("cannot examine", path);
  }
  if (S_ISREG(status.st_mode)) return FileKind::regular;
  return S_ISDIR(status.st_mode) ? FileKind::folder : FileKind::other;
}

namespace {

/// Reads the names once; returns 0, or -1 with errno.
int list_once(const std::filesystem::path& folder, std::vector<std::string>& names) {
  names.clear();
  DIR* const open = ::opendir(folder.c_str());
  if (open == nullptr) return -1;
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(open);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  ::closedir(open);
  errno = error;
  return error == 0 ? 0 : -1;
}

}  // namespace

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  if (patiently(folder, [&] { return list_once(folder, names); }) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) fail_to_read("cannot list", folder);
    names.clear();
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_beginning(const std::filesystem::path& path, std::int64_t most) {
  File file = File::open_to_read(path);
  constexpr std::size_t piece = std::size_t{1} << 16;
  std::string text;
  while (std::ssize(text) < most) {
    const std::size_t have = text.size();
    text.resize(std::min(static_cast<std::size_t>(most), have + piece));
    const std::int64_t got = file.read(std::span(text).subspan(have));
    text.resize(have + static_cast<std::size_t>(got));
    if (got == 0) break;
  }
  return text;
}

namespace {

/// A mapped file, for the signal handler.
struct Mapped {
  std::atomic<const std::byte*> start{nullptr};
  std::atomic<std::size_t> size{0};
  std::array<char, 512> path{};
};
std::array<Mapped, 256> mapped;
struct sigaction action_before {};

/// Handles SIGBUS: the system cannot load a page of a mapping, since a disk or server failed or the
/// file was shortened.
void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (const Mapped& one : mapped) {
    const std::byte* start = one.start;
    if (start == nullptr || at < start || at >= start + one.size) continue;
    for (const char* text : {"error: cannot read ", one.path.data(),
                             ": the disk or its server does not answer, or the file was cut\n"}) {
      [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, text, std::strlen(text));
    }
    end_suddenly(ExitCode::io);
  }
  ::sigaction(signal, &action_before, nullptr);  // another fault: repeats with the former handler
}

void note_mapping(const std::byte* start, std::size_t size, const std::string& path) {
  static std::mutex adding;
  static bool installed = false;
  const std::lock_guard lock(adding);
  if (!installed) {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, &action_before);
    installed = true;
  }
  for (Mapped& one : mapped) {
    if (one.start != nullptr) continue;
    const std::size_t length = std::min(path.size(), one.path.size() - 1);
    std::copy_n(path.data(), length, one.path.data());
    one.path[length] = 0;
    one.size = size;
    one.start = start;
    return;
  }
}

void forget_mapping(const std::byte* start) {
  for (Mapped& one : mapped) {
    if (one.start == start) one.start = nullptr;
  }
}

}  // namespace

Mapping::Mapping(const File& file) {
  const auto size = static_cast<std::size_t>(file.size());
  if (size == 0) return;
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (start == MAP_FAILED) fail(ExitCode::missing_input, "cannot map", file.path());
  start_ = static_cast<const std::byte*>(start);
  size_ = size;
  note_mapping(start_, size_, printable_lines(file.path().string()));
}

Mapping::~Mapping() {
  if (start_ == nullptr) return;
  forget_mapping(start_);
  ::munmap(const_cast<std::byte*>(start_), size_);
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

namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 18;

/// A temporary name that no other writer uses, in this or another process.
std::filesystem::path temporary_beside(const std::filesystem::path& target) {
  static std::atomic<int> number{0};
  return target.string() + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
}

/// Whether the path leads to a device, pipe or socket, also through links such as /dev/stdout.
bool is_special(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  return std::filesystem::is_other(status);
}

/// The path of the file itself, after following links.
std::filesystem::path end_of_links(const std::filesystem::path& path) {
  require(!is_special(path), ExitCode::io,
          "cannot replace " + path.string() + ": it is not a regular file");
  constexpr int max_links = 40;  // the system's limit
  std::filesystem::path end = path;
  std::error_code failure;
  for (int i = 0; i < max_links && std::filesystem::is_symlink(end, failure); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(end, failure);
    end = next.is_absolute() ? next : end.parent_path() / next;
  }
  return end;
}

constexpr std::string_view partial_ending = ".partial";

}  // namespace

std::filesystem::path Fence::partial(const std::filesystem::path& target) const {
  return target.string() + "." + std::to_string(session) + std::string(partial_ending);
}

bool Fence::is_partial(std::string_view name, std::int64_t most) {
  if (!name.ends_with(partial_ending)) return false;
  name.remove_suffix(partial_ending.size());
  const std::string_view digits = name.substr(name.rfind('.') + 1);
  std::int64_t of = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), of);
  const bool numbered = failure == std::errc() && end == digits.data() + digits.size();
  return !numbered || of <= most;
}

WholeFile::WholeFile(std::filesystem::path target, unsigned permissions, const Fence* fence)
    : target_(end_of_links(target)),
      fence_(fence),
      file_(File::create(fence == nullptr ? temporary_beside(target_) : fence->partial(target_),
                         permissions)) {}

WholeFile::~WholeFile() {
  if (!is_published_) ::unlink(file_.path().c_str());
}

void WholeFile::write(std::span<const char> bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() >= buffer_bytes) return file_.write(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void WholeFile::flush() {
  file_.write(buffer_);
  buffer_.clear();
}

void WholeFile::publish() {
  flush();
  file_.sync();
  if (fence_ != nullptr && fence_->pass) fence_->pass();
  std::error_code failure;
  std::filesystem::rename(file_.path(), target_, failure);
  // A network file system may report an error after it has renamed the file.
  if (failure && file_.is_named(target_)) failure.clear();
  require(fence_ == nullptr || failure != std::errc::no_such_file_or_directory, ExitCode::taken,
          "another start has taken over the run: it has removed " + file_.path().string());
  require(!failure, ExitCode::io, "cannot write " + target_.string() + ": " + failure.message());
  is_published_ = true;
}

void write_whole_file(const std::filesystem::path& path, std::string_view content,
                      unsigned permissions) {
  if (is_special(path)) return File::open_to_append(path).write(content);
  WholeFile file(path, permissions);
  file.write(content);
  file.publish();
}

void write_whole_file(const std::filesystem::path& path, std::string_view content,
                      const Fence& fence) {
  WholeFile file(path, 0644, &fence);
  file.write(content);
  file.publish();
}

void copy_whole_file(const std::filesystem::path& from, const std::filesystem::path& to,
                     const Fence* fence) {
  File source = File::open_to_read(from);
  WholeFile copy(to, 0644, fence);
  std::vector<char> piece(buffer_bytes);
  while (const std::int64_t got = source.read(piece)) {
    copy.write(std::span(piece).first(static_cast<std::size_t>(got)));
  }
  copy.publish();
}

TemporaryFolder::TemporaryFolder(const std::filesystem::path& prefix, const std::string& hint) {
  std::string name = prefix.string() + "-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(ExitCode::io, "cannot create the folder " + prefix.string() +
                                  "-XXXXXX: " + std::generic_category().message(errno) + hint);
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code failure;
  std::filesystem::remove_all(path_, failure);
}

}  // namespace trainctl
