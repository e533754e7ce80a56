// The safetensors format: a JSON header with names, dtypes, shapes and offsets, then the raw
// little-endian data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "device/tensor.h"

namespace trainctl {

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
                       std::span<std::byte> work = {});

/// A file mapped into memory; its tensors are views of it and must not be written.
class SafetensorsFile {
 public:
  /// Checks the header completely: names unique, sizes equal to shape times dtype, no hole, no
  /// overlap, nothing after the last tensor. Throws Error{missing_input} or Error{bad_data} with
  /// the path and what is wrong.
  explicit SafetensorsFile(const std::filesystem::path& path);

  bool contains(const std::string& name) const { return tensors_.contains(name); }
  /// Throws Error{bad_data} when there is no such tensor.
  Tensor at(const std::string& name) const;
  std::vector<std::string> names() const;  // sorted

 private:
  void read_header();

  std::filesystem::path path_;
  Mapping mapping_;
  std::unordered_map<std::string, Tensor> tensors_;
};

}  // namespace trainctl
