// Files that are whole or not there: they are written under a temporary name in the target's folder
// and take the target's name only at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace trainctl {

/// Who writes into a folder that several processes may take over from each other, one after the
/// other: sessions, of which each has a higher number than those before. What a session is writing
/// has a name of its own, so that a later one can take it away.
struct Fence {
  std::int64_t session = 0;
  /// Asked when all is on disk, right before it gets its name. Throws where another session has
  /// taken over, or where it cannot be known. Empty: nobody can.
  std::function<void()> pass;

  /// `target`.813.partial
  std::filesystem::path partial(const std::filesystem::path& target) const;
  /// Whether `name` is one that partial() gives to a session up to `most`, or that an earlier
  /// version gave to what it was writing.
  static bool is_partial(std::string_view name, std::int64_t most);
};

/// Collects small writes. Errors are those of File::write; without publish() nothing is left. A
/// link is followed.
class WholeFile {
 public:
  /// Throws Error{io} where a device, a pipe or a socket has the name: it is not replaced. `fence`:
  /// of the folder, if it has one; it must outlive the file.
  explicit WholeFile(std::filesystem::path target, unsigned permissions = 0644,
                     const Fence* fence = nullptr);
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
  /// Error{io}, what the fence throws, and Error{taken} where another session has taken the file
  /// away.
  void publish();
  File& file() { return file_; }
  const std::filesystem::path& target() const { return target_; }

 private:
  std::filesystem::path target_;
  const Fence* fence_;
  File file_;
  std::vector<char> buffer_;
  bool is_published_ = false;
};

/// A file with this content. A device or a pipe is written to as it is. Throws Error{io}.
void write_whole_file(const std::filesystem::path& path, std::string_view content,
                      unsigned permissions = 0644);
/// Writes into a folder that has a fence.
void write_whole_file(const std::filesystem::path& path, std::string_view content,
                      const Fence& fence);
/// A copy of `from`. Throws as File::open_to_read and WholeFile.
void copy_whole_file(const std::filesystem::path& from, const std::filesystem::path& to,
                     const Fence* fence = nullptr);

}  // namespace trainctl
