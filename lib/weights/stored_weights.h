// Parameters in a store: files of Hugging Face or llm.c, a checkpoint, memory. Any store that can
// read boxes of parameters can be loaded into any layout and exported to any format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/shape.h"
#include "config/schema/choices.h"
#include "config/upstream/hugging_face.h"
#include "engine/parameters/param_store.h"
#include "plan/plan.h"
#include "weights/safetensors.h"

namespace trainctl {

/// Elements [row, row + rows) x [column, column + columns) of a parameter [out, in]; a vector is
/// one column. For experts, [experts, out, in], rows are counted through all experts, and a box
/// lies within one expert.
struct MatrixBox {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 1;

  std::int64_t elements() const { return rows * columns; }
};

class StoredWeights {
 public:
  virtual ~StoredWeights() = default;
  /// Writes the box's values to `out`, row by row, in fp32. `name` is ours (plan/tables/params.h)
  /// and the box lies inside the whole parameter without the vocabulary's padding. Reads little
  /// more than the box and holds a few MiB. Throws Error{bad_data | missing_input}.
  virtual void read(const std::string& name, const MatrixBox& box, float* out) const = 0;
};

/// The number of elements that readers and writers hold in memory at a time.
inline constexpr std::int64_t elements_at_a_time = std::int64_t{1} << 20;

// Conversion of numbers in files to fp32, and boxes of stored matrices in bounded memory.

/// Whether values of that dtype can be weights: fp32, bf16, fp16.
bool is_weight_type(DType dtype);

/// Converts `count` stored values, perhaps unaligned, to to[0], to[stride], to[2 * stride], ...
void convert_values(DType dtype, const char* stored, std::int64_t count, float* to,
                    std::int64_t stride);
/// Converts fp32 values to stored ones, fp32 or bf16.
void store_values(DType dtype, const float* from, std::int64_t count, char* stored);

/// Formats of one byte, which no Tensor has. Both have NaN, neither has infinity.
///   e4m3  a sign, 4 bits of exponent, 3 of fraction
///   e8m0  8 bits of exponent: powers of two, for scales
using ByteFormat = OneOf<"none|e4m3|e8m0">;

/// A stored row-major matrix of `width` columns; `bytes` reads from its byte `begin` on.
struct StoredMatrix {
  DType dtype = DType::f32;
  std::int64_t width = 1;
  std::function<void(std::int64_t begin, std::span<char> out)> bytes;
  ByteFormat format = "none";  // used instead of dtype unless none
};

/// Reads the box of a stored matrix, or with `transposed` its transpose: element (i, j) of the box
/// goes to out[i * box.columns + j], or to out[j * box.rows + i]. Long rows are read one by one,
/// short rows together with the bytes between them.
void read_box(const StoredMatrix& matrix, const MatrixBox& box, bool transposed, float* out);

// Tensors of a model's files as fp32: plain ones, and 8-bit ones with their scales.

/// A tensor in its file.
struct FileTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

/// A tensor and, if it is F8_E4M3, the scales that multiply its values.
struct ScaledTensor {
  FileTensor values{};
  FileTensor scales{};  // unset if the values need no scales
  HuggingFaceBlocks blocks{};
};

/// Whether the values of the tensor need scales.
bool needs_scales(const SafetensorsEntry& entry);
/// Whether values of the type can be scales: F32, BF16, F16, F8_E8M0.
bool can_be_scales(const SafetensorsEntry& entry);
/// The shape of a matrix's scales; a last block may be cut off. Rank 0 for one scale of all values.
Shape shape_of_scales(const Shape& matrix, const HuggingFaceBlocks& blocks);

/// Reads a box of the matrix; a vector is a column. With scales, each value is multiplied by the
/// scale of its block and rounded to fp32. `transposed` as for read_box; not allowed with scales.
void read_tensor(const ScaledTensor& tensor, const MatrixBox& box, bool transposed, float* out);

// Loads stored weights into one rank of any layout: every rank reads its own part only.

/// Fills the masters of `rank`'s stage; rows of the vocabulary's padding become zero. The caller
/// refreshes the compute copies. Uses a few MiB of memory. Throws the errors of the store.
void load_weights(const StoredWeights& weights, const Plan& plan, std::int64_t rank,
                  ParamStore& store);
/// Loads from a directory with Hugging Face's names, which is checked first.
void load_weights(const std::filesystem::path& directory, const Plan& plan, std::int64_t rank,
                  ParamStore& store);

}  // namespace trainctl
