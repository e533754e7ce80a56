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
  std::string stored;  // the dtype's name in the file, "BF16"
  // Nothing: a type of the format that no tensor here has, or more dims than one has; of these the
  // shape has one dim, all elements.
  std::optional<DType> dtype;
  Shape shape;
  std::int64_t offset = 0;  // of its first byte in the file
  std::int64_t bytes = 0;
};

/// Every tensor by its name. Checks: names unique, sizes equal to shape times dtype, no hole, no
/// overlap, nothing after the last tensor. Throws Error{bad_data} with file, tensor and offset.
std::map<std::string, SafetensorsEntry> read_safetensors_header(const File& file);

/// The format's name of a dtype, "BF16"; "" where it has none.
std::string safetensors_name(DType dtype);

/// A tensor to be written: `fill` is called once, when its turn comes, with host memory of that
/// shape.
struct TensorToWrite {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  std::function<void(const Tensor& to)> fill;
};

/// Writes through a temporary file, so that the result is whole or not there. `work` is
/// overwritten; only if it cannot hold the largest tensor, memory for that one is taken. Throws
/// Error{io} with the path.
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
  /// out.size() bytes of a tensor from its byte `begin`. Throws Error{bad_data}.
  void read(const SafetensorsEntry& entry, std::int64_t begin, std::span<char> out) const;
  /// A view of the tensor in the mapped file, which must not be written. Throws Error{bad_data}
  /// when there is no such tensor, or it has a dtype that no tensor here has.
  Tensor at(const std::string& name) const;

 private:
  File file_;
  std::map<std::string, SafetensorsEntry> entries_;
  Mapping mapping_;
};

}  // namespace trainctl
