// An owned file descriptor and a read-only mapping. Every failure is an Error that names the file,
// what was tried and what the system answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace trainctl {

class File {
 public:
  /// Opens an existing file, not a directory. Throws Error{missing_input}.
  static File open_to_read(const std::filesystem::path& path);
  /// A new file, open for reading and writing; it must not exist yet. Throws Error{io}.
  static File create(const std::filesystem::path& path, unsigned permissions = 0644);
  /// Open for writing at its end, made if it is not there. Throws Error{io}.
  static File open_to_append(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  std::int64_t size() const;
  /// Up to out.size() bytes from the current place; 0 at the end. Throws Error{missing_input}.
  std::int64_t read(std::span<char> out);
  /// Exactly out.size() bytes from `offset`; false when the file ends early or cannot be read.
  bool try_read_at(std::int64_t offset, std::span<char> out) const noexcept;
  /// As try_read_at; throws Error{bad_data} with the offset and the file's size.
  void read_at(std::int64_t offset, std::span<char> out) const;
  /// All of `bytes`, at the current place or at `offset`. Throw Error{io}.
  void write(std::span<const char> bytes);
  void write_at(std::int64_t offset, std::span<const char> bytes);
  /// All of `bytes`, or nothing of them, to a file that was opened to append. Throws Error{io}.
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
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool past_cache_ = false;
};

/// The whole of a file, read-only. An empty file has an empty mapping.
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

}  // namespace trainctl
