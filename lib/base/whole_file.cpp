#include "base/whole_file.h"

#include <unistd.h>

#include <atomic>
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

}  // namespace

WholeFile::WholeFile(std::filesystem::path target, unsigned permissions)
    : target_(std::move(target)), file_(File::create(temporary_beside(target_), permissions)) {}

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
  std::error_code failure;
  std::filesystem::rename(file_.path(), target_, failure);
  require(!failure, ExitCode::io, "cannot write " + target_.string() + ": " + failure.message());
  is_published_ = true;
}

void write_whole_file(const std::filesystem::path& path, std::string_view content,
                      unsigned permissions) {
  WholeFile file(path, permissions);
  file.write(content);
  file.publish();
}

}  // namespace trainctl
