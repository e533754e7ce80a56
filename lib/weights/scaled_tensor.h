// Tensors of a model's files as fp32: plain ones, and those of 8 bits with their scales.
#pragma once

#include <optional>
#include <string>

#include "base/shape.h"
#include "config/upstream/hugging_face.h"
#include "weights/safetensors.h"
#include "weights/stored_weights.h"

namespace trainctl {

/// A tensor where it lies.
struct FileTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

/// A tensor, and for one of F8_E4M3 what its values are multiplied by.
struct ScaledTensor {
  FileTensor values{};
  FileTensor scales{};  // none: the values are what they are
  HuggingFaceBlocks blocks{};
};

/// Whether its values need scales.
bool needs_scales(const SafetensorsEntry& entry);
/// Whether values of the type can be scales: F32, BF16, F16, F8_E8M0.
bool can_be_scales(const SafetensorsEntry& entry);
/// That of the scales of a matrix; a last block may be cut off. For a whole tensor, rank 0.
Shape shape_of_scales(const Shape& matrix, const HuggingFaceBlocks& blocks);

/// A box of the matrix; a vector is a column. Each value times the scale of its block, rounded to
/// fp32. `transposed` as for read_box; not with scales.
void read_tensor(const ScaledTensor& tensor, const MatrixBox& box, bool transposed, float* out);

}  // namespace trainctl
