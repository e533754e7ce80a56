// The header of a safetensors file, checked completely before any value is read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"

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

}  // namespace trainctl
