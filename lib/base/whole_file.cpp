#include "base/whole_file.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace trainctl {

namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 18;

/// A name that no other process and no other writer of this one uses.
std::filesystem::path temporary_beside(const std::filesystem::path& target) {
  static std::atomic<int> number{0};
  return target.string() + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
}

/// Devices, pipes and sockets, also at the end of a link such as /dev/stdout.
bool is_special(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  return std::filesystem::is_other(status);
}

/// Where the file is or will be.
std::filesystem::path end_of_links(const std::filesystem::path& path) {
  require(!is_special(path), ExitCode::io,
          "cannot replace " + path.string() + ": it is not a regular file");
  constexpr int most_links = 40;  // as the system follows
  std::filesystem::path end = path;
  std::error_code failure;
  for (int i = 0; i < most_links && std::filesystem::is_symlink(end, failure); ++i) {
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
  // A file system over a network may report an error of what it has done.
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

}  // namespace trainctl
