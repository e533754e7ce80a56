// An owned file descriptor and a read-only mapping, and what else is asked of a file system. Every
// failure is an Error that names the file, what was tried and what the system answered. Reading
// that fails in a way that may pass (a disk or server that does not answer: EIO, ESTALE, EAGAIN and
// the like) is tried again for some seconds, which a warning says after one second. If it still
// fails, that is an Error{io}: it says nothing of what the file holds or whether it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

class File {
 public:
  /// Opens an existing file, not a directory. A pipe or a device must have bytes within some
  /// seconds. Throws Error{missing_input | io}.
  static File open_to_read(const std::filesystem::path& path);
  /// A new file, open for reading and writing; it must not exist yet. Throws Error{io}.
  static File create(const std::filesystem::path& path, unsigned permissions = 0644);
  /// Open for writing at its end, made if it is not there. Throws Error{io}.
  static File open_to_append(const std::filesystem::path& path);
  /// As open_to_append; it can be read as well.
  static File open_to_extend(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  std::int64_t size() const;
  /// Whether `name` is this very file: it may have been removed or replaced since it was opened.
  bool is_named(const std::filesystem::path& name) const;
  /// Up to out.size() bytes from the current place; 0 at the end. Throws Error{io}.
  std::int64_t read(std::span<char> out);
  /// Exactly out.size() bytes from `offset`; false when the file ends early or cannot be read.
  bool try_read_at(std::int64_t offset, std::span<char> out) const noexcept;
  /// As try_read_at; throws Error{bad_data} with the offset and the file's size where it ends
  /// early, Error{io} where it cannot be read.
  void read_at(std::int64_t offset, std::span<char> out) const;
  /// All of `bytes`, at the current place or at `offset`. Throw Error{io}.
  void write(std::span<const char> bytes);
  void write_at(std::int64_t offset, std::span<const char> bytes);
  /// Appends all of `bytes`, or none, to a file that was opened to append. Throws Error{io}.
  void append_whole(std::span<const char> bytes);
  /// From now on write() goes past the system's cache of files, where the file system allows it.
  /// Memory, length and place of each must then be multiples of `direct_alignment`; the first write
  /// that is not goes through the cache, as do those after it.
  void write_past_cache();
  static constexpr std::size_t direct_alignment = 4096;
  /// To stable storage. Throws Error{io}.
  void sync();

 private:
  File(std::filesystem::path path, int descriptor);
  /// 0, the error of the system, or `ends_early`.
  int read_exactly(std::int64_t offset, std::span<char> out) const noexcept;
  static constexpr int ends_early = -1;
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool past_cache_ = false;
};

/// The kind of file that has this name, at the end of links.
enum class FileKind { none, regular, folder, other };
/// Throws Error{missing_input | io} if the system does not say.
FileKind kind_of_file(const std::filesystem::path& path);

/// The names in a folder, sorted; none if there is no such folder. Throws Error{missing_input |
/// io}.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// The first bytes of a file, pipe or device, at most `most`. Throws as File::open_to_read.
std::string read_beginning(const std::filesystem::path& path, std::int64_t most);

/// The whole of a file, read-only. Where a part of it cannot be brought into memory later, the
/// process ends with ExitCode::io and a line that names the file. An empty file has an empty
/// mapping.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(const File& file);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::span<const std::byte> bytes() const { return {start_, size_}; }
  /// Drops the pages from this process's resident memory; the next access brings them back.
  void release_pages() const noexcept;

 private:
  const std::byte* start_ = nullptr;
  std::size_t size_ = 0;
};

// Files that are whole or not there: they are written under a temporary name in the target's folder
// and take the target's name only at the end.

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

// A folder that goes away.

/// A new folder under a unique name. The destructor removes it with everything in it; it may have
/// been renamed away by then.
class TemporaryFolder {
 public:
  /// Makes a folder with the name `prefix`-XXXXXX, where the Xs differ each time. Throws Error{io};
  /// its message ends with `hint`.
  explicit TemporaryFolder(const std::filesystem::path& prefix, const std::string& hint = "");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace trainctl
