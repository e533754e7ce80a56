// The safetensors format: a JSON header with names, dtypes, shapes and offsets, then the raw
// little-endian data. The header is checked completely before any value is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"
#include "device/tensor.h"

namespace trainctl {

struct SafetensorsEntry {
  std::string stored;  // name of the dtype in the file, for example "BF16"
  // Unset for a type that Tensor lacks, and for more dims than a Tensor has; with too many dims,
  // `shape` has one dim, all elements.
  std::optional<DType> dtype;
  Shape shape;
  std::int64_t offset = 0;  // place of its first byte in the file
  std::int64_t bytes = 0;
};

/// All tensors of a file by name. Checks: names unique, sizes equal to shape times dtype, no hole,
/// no overlap, nothing after the last tensor. Throws Error{bad_data} with file, tensor and offset.
std::map<std::string, SafetensorsEntry> read_safetensors_header(const File& file);

/// The name of a dtype in the format, for example "BF16"; "" if it has none.
std::string safetensors_name(DType dtype);

/// A tensor that a file will contain: `fill` is called once, just before it is written, with host
/// memory of that shape.
struct TensorToWrite {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  std::function<void(const Tensor& to)> fill;
};

/// Writes through a temporary file, so that the file is complete or absent. `work` is overwritten;
/// if it cannot hold the largest tensor, memory for that tensor is allocated. Throws Error{io} with
/// the path.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       std::span<std::byte> work = {}, const Fence* fence = nullptr);

/// A file whose header has been read and checked.
class SafetensorsFile {
 public:
  /// Throws Error{missing_input}, or as read_safetensors_header.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  bool contains(const std::string& name) const { return entries_.contains(name); }
  std::vector<std::string> names() const;  // sorted
  /// Reads out.size() bytes of a tensor from its byte `begin` on. Throws Error{bad_data}.
  void read(const SafetensorsEntry& entry, std::int64_t begin, std::span<char> out) const;
  /// A view of the tensor in the mapped file, which must not be written. Throws Error{bad_data} if
  /// the file has no such tensor, or its dtype is not a DType.
  Tensor at(const std::string& name) const;

 private:
  File file_;
  std::map<std::string, SafetensorsEntry> entries_;
  Mapping mapping_;
};

}  // namespace trainctl
