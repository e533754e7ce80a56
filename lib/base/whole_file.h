// Files that are whole or not there: written under a temporary name beside the target, which they
// take only at the end.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace trainctl {

/// Collects small writes. Errors are those of File::write; without publish() nothing is left. A
/// link is followed.
class WholeFile {
 public:
  /// Throws Error{io} where a device, a pipe or a socket has the name: it is not replaced.
  explicit WholeFile(std::filesystem::path target, unsigned permissions = 0644);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(std::span<const char> bytes);
  template <class T>
  void write_value(T value) {
    write(std::span(reinterpret_cast<const char*>(&value), sizeof value));
  }
  void flush();
  /// Brings all of it to stable storage and gives it its name, replacing what had it. Throws
  /// Error{io}.
  void publish();
  File& file() { return file_; }
  const std::filesystem::path& target() const { return target_; }

 private:
  std::filesystem::path target_;
  File file_;
  std::vector<char> buffer_;
  bool is_published_ = false;
};

/// A file with this content. A device or a pipe is written to as it is. Throws Error{io}.
void write_whole_file(const std::filesystem::path& path, std::string_view content,
                      unsigned permissions = 0644);

}  // namespace trainctl
