// Owned file descriptors, read-only mappings, and other operations on files. Every failure is an
// Error that names the file, the attempted operation and the system's answer. A read that fails in
// a way that may pass (a disk or server that does not answer: EIO, ESTALE, EAGAIN and the like) is
// retried for some seconds, with a warning after one second. If it still fails, Error{io} is
// thrown, which tells nothing about the contents or existence of the file.
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
  /// Opens an existing file, but not a directory. A pipe or device must deliver bytes within some
  /// seconds. Throws Error{missing_input | io}.
  static File open_to_read(const std::filesystem::path& path);
  /// Creates a new file for reading and writing; it must not exist yet. Throws Error{io}.
  static File create(const std::filesystem::path& path, unsigned permissions = 0644);
  /// Opens a file for writing at its end; creates it if missing. Throws Error{io}.
  static File open_to_append(const std::filesystem::path& path);
  /// Like open_to_append(), but the file can also be read.
  static File open_to_extend(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  std::int64_t size() const;
  /// Whether `name` still names this file, which may have been removed or replaced.
  bool is_named(const std::filesystem::path& name) const;
  /// Reads up to out.size() bytes at the current position; returns 0 at the end. Throws Error{io}.
  std::int64_t read(std::span<char> out);
  /// Reads exactly out.size() bytes at `offset`; false if the file ends early or cannot be read.
  bool try_read_at(std::int64_t offset, std::span<char> out) const noexcept;
  /// try_read_at() that throws Error{bad_data} with the offset and the file's size if the file ends
  /// early, and Error{io} if it cannot be read.
  void read_at(std::int64_t offset, std::span<char> out) const;
  /// Writes all of `bytes` at the current position, or at `offset`. Throws Error{io}.
  void write(std::span<const char> bytes);
  void write_at(std::int64_t offset, std::span<const char> bytes);
  /// Appends all of `bytes` or none; the file must have been opened to append. Throws Error{io}.
  void append_whole(std::span<const char> bytes);
  /// From now on write() bypasses the system's file cache, if the file system allows it. Address,
  /// length and position of each write must be multiples of `direct_alignment`; the first write
  /// that is not, and all later ones, use the cache.
  void write_past_cache();
  static constexpr std::size_t direct_alignment = 4096;
  /// Brings the data to stable storage. Throws Error{io}.
  void sync();

 private:
  File(std::filesystem::path path, int descriptor);
  /// Returns 0, an errno, or `ends_early`.
  int read_exactly(std::int64_t offset, std::span<char> out) const noexcept;
  static constexpr int ends_early = -1;
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool past_cache_ = false;
};

/// The kind of file at a path, after following links.
enum class FileKind { none, regular, folder, other };
/// Throws Error{missing_input | io} if the system does not tell.
FileKind kind_of_file(const std::filesystem::path& path);

/// The sorted names in a folder; empty if there is no such folder. Throws Error{missing_input |
/// io}.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// Up to `most` bytes from the start of a file, pipe or device. Throws as File::open_to_read.
std::string read_beginning(const std::filesystem::path& path, std::int64_t most);

/// A read-only mapping of a whole file. If a page cannot be loaded later, the process ends with
/// ExitCode::io and a line that names the file. An empty file has an empty mapping.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(const File& file);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::span<const std::byte> bytes() const { return {start_, size_}; }
  /// Removes the pages from this process's resident memory; the next access loads them again.
  void release_pages() const noexcept;

 private:
  const std::byte* start_ = nullptr;
  std::size_t size_ = 0;
};

// Files that are complete or absent: they are written under a temporary name in the target's folder
// and renamed at the end.

/// The writer of a folder that several processes, one after the other, may take over: a session,
/// with a higher number than earlier ones. Its unfinished files have names with that number, so
/// that later sessions can remove them.
struct Fence {
  std::int64_t session = 0;
  /// Called when a file is completely on disk, right before it is renamed. Throws if another
  /// session has taken over, or if that is unknown. Empty if the folder cannot be taken over.
  std::function<void()> pass;

  /// The temporary name of a file: `target`.813.partial for session 813.
  std::filesystem::path partial(const std::filesystem::path& target) const;
  /// Whether `name` is a temporary name given by partial() for a session up to `most`, or given by
  /// an earlier version in its own form.
  static bool is_partial(std::string_view name, std::int64_t most);
};

/// A buffered writer of such a file. Errors are those of File::write. Without publish(), no file
/// remains. A link is followed.
class WholeFile {
 public:
  /// Throws Error{io} if `target` is a device, a pipe or a socket, which is not replaced. `fence`
  /// is that of the folder, if any, and must outlive this object.
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
  /// Brings the file to stable storage and renames it to the target, replacing a file there. Throws
  /// Error{io}, the errors of the fence, and Error{taken} if another session has removed the file.
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

/// Writes a file with this content. A device or pipe is written to directly. Throws Error{io}.
void write_whole_file(const std::filesystem::path& path, std::string_view content,
                      unsigned permissions = 0644);
/// Writes a file into a folder with a fence.
void write_whole_file(const std::filesystem::path& path, std::string_view content,
                      const Fence& fence);
/// Copies the file `from` to `to`. Throws as File::open_to_read and WholeFile.
void copy_whole_file(const std::filesystem::path& from, const std::filesystem::path& to,
                     const Fence* fence = nullptr);

// A folder that is removed automatically.

/// A new folder under a unique name. The destructor removes it with its contents, unless it has
/// been renamed.
class TemporaryFolder {
 public:
  /// Creates a folder `prefix`-XXXXXX, where the Xs differ each time. Throws Error{io}, whose
  /// message ends with `hint`.
  explicit TemporaryFolder(const std::filesystem::path& prefix, const std::string& hint = "");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace trainctl
