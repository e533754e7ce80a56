#include "weights/stored_weights.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "device/slab.h"
#include "plan/tables/shard.h"
#include "weights/hugging_face.h"

namespace trainctl {

namespace {

constexpr std::int64_t long_row = 64 << 10;  // bytes; reading a longer row alone costs little more

template <class T>
void convert(const char* stored, std::int64_t count, float* to, std::int64_t stride) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, stored + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    to[i * stride] = to_float(value);
  }
}

float from_e4m3(unsigned char bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                             : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  if ((bits & 127) == 127) size = std::numeric_limits<float>::quiet_NaN();
  return (bits & 128) != 0 ? -size : size;
}

float from_e8m0(unsigned char bits) {
  return bits == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, bits - 127);
}

/// The value of each of the 256 bytes.
const std::array<float, 256>& values_of(ByteFormat format) {
  const auto make = [](float (*value)(unsigned char)) {
    std::array<float, 256> values{};
    for (int i = 0; i < 256; ++i) {
      values[static_cast<std::size_t>(i)] = value(static_cast<unsigned char>(i));
    }
    return values;
  };
  static const std::array<float, 256> e4m3 = make(from_e4m3), e8m0 = make(from_e8m0);
  return format == "e4m3" ? e4m3 : e8m0;
}

/// Cuts the box into spans of at most elements_at_a_time, each of whole rows or part of one row,
/// and converts every row of a span.
class BoxReader {
 public:
  BoxReader(const StoredMatrix& matrix, const MatrixBox& box, bool transposed, float* out)
      : matrix_(matrix), box_(box), transposed_(transposed), out_(out) {}

  void read() {
    const bool whole_rows = box_.columns == matrix_.width;
    const std::int64_t reach = whole_rows ? box_.columns : matrix_.width;
    const bool by_row = !whole_rows && box_.columns * size() >= long_row;
    const std::int64_t rows =
        by_row ? 1
               : std::max<std::int64_t>(1, elements_at_a_time / std::max<std::int64_t>(1, reach));
    for (std::int64_t row = 0; row < box_.rows; row += rows) {
      read_rows(row, std::min(rows, box_.rows - row));
    }
  }

 private:
  void read_rows(std::int64_t row, std::int64_t rows) {
    if (rows > 1) return read_span(row, rows, 0, box_.columns);
    for (std::int64_t column = 0; column < box_.columns; column += elements_at_a_time) {
      read_span(row, 1, column, std::min(elements_at_a_time, box_.columns - column));
    }
  }

  /// Reads one span; rows and columns count from the box's corner.
  void read_span(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    const std::int64_t size = this->size();
    const std::int64_t first = (box_.row + row) * matrix_.width + box_.column + column;
    const std::int64_t elements = (rows - 1) * matrix_.width + columns;
    held_.resize(static_cast<std::size_t>(elements * size));
    matrix_.bytes(first * size, held_);
    for (std::int64_t i = 0; i < rows; ++i) {
      const char* from = held_.data() + i * matrix_.width * size;
      float* to = transposed_ ? out_ + column * box_.rows + row + i
                              : out_ + (row + i) * box_.columns + column;
      convert(from, columns, to, transposed_ ? box_.rows : 1);
    }
  }

  /// Bytes of a value.
  std::int64_t size() const { return matrix_.format == "none" ? size_of(matrix_.dtype) : 1; }

  void convert(const char* from, std::int64_t count, float* to, std::int64_t stride) const {
    if (matrix_.format == "none") {
      return convert_values(matrix_.dtype, from, count, to, stride);
    }
    const std::array<float, 256>& values = values_of(matrix_.format);
    for (std::int64_t i = 0; i < count; ++i) {
      to[i * stride] = values[static_cast<unsigned char>(from[i])];
    }
  }

  const StoredMatrix& matrix_;
  const MatrixBox& box_;
  bool transposed_;
  float* out_;
  std::vector<char> held_;
};

}  // namespace

bool is_weight_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

void convert_values(DType dtype, const char* stored, std::int64_t count, float* to,
                    std::int64_t stride) {
  assert(is_weight_type(dtype));
  if (dtype == DType::f32) return convert<float>(stored, count, to, stride);
  if (dtype == DType::bf16) return convert<bf16>(stored, count, to, stride);
  convert<fp16>(stored, count, to, stride);
}

void store_values(DType dtype, const float* from, std::int64_t count, char* stored) {
  assert(dtype == DType::f32 || dtype == DType::bf16);
  const std::int64_t size = size_of(dtype);
  if (dtype == DType::f32) {
    std::memcpy(stored, from, static_cast<std::size_t>(count * size));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const bf16 value = to_bf16(from[i]);
    std::memcpy(stored + i * size, &value, sizeof value);
  }
}

void read_box(const StoredMatrix& matrix, const MatrixBox& box, bool transposed, float* out) {
  BoxReader(matrix, box, transposed, out).read();
}

namespace {

constexpr const char* scaled_type = "F8_E4M3";
constexpr const char* powers_of_two = "F8_E8M0";

StoredMatrix matrix_of(const FileTensor& found) {
  const SafetensorsFile* file = found.file;
  const SafetensorsEntry* entry = found.entry;
  const Shape& shape = entry->shape;
  const ByteFormat format = entry->stored == scaled_type     ? ByteFormat("e4m3")
                            : entry->stored == powers_of_two ? ByteFormat("e8m0")
                                                             : ByteFormat("none");
  return {
      entry->dtype.value_or(DType::f32), shape.rank() < 2 ? 1 : shape.back(),
      [file, entry](std::int64_t begin, std::span<char> out) { file->read(*entry, begin, out); },
      format};
}

std::int64_t blocks_of(std::int64_t extent, std::int64_t block) {
  return (extent + block - 1) / block;
}

void multiply(const ScaledTensor& tensor, const MatrixBox& box, float* out) {
  const bool whole = tensor.blocks.rows == 0;
  const std::int64_t rows = whole ? box.row + box.rows : tensor.blocks.rows;
  const std::int64_t columns = whole ? box.column + box.columns : tensor.blocks.columns;
  MatrixBox there{.row = box.row / rows, .rows = 0, .column = box.column / columns, .columns = 0};
  there.rows = blocks_of(box.row + box.rows, rows) - there.row;
  there.columns = blocks_of(box.column + box.columns, columns) - there.column;
  std::vector<float> scales(static_cast<std::size_t>(there.elements()));
  read_box(matrix_of(tensor.scales), there, false, scales.data());
  for (std::int64_t i = 0; i < box.rows; ++i) {
    const std::int64_t first = ((box.row + i) / rows - there.row) * there.columns;
    for (std::int64_t j = 0; j < box.columns; ++j) {
      const std::int64_t at = first + (box.column + j) / columns - there.column;
      out[i * box.columns + j] *= scales[static_cast<std::size_t>(at)];
    }
  }
}

}  // namespace

bool needs_scales(const SafetensorsEntry& entry) { return entry.stored == scaled_type; }

bool can_be_scales(const SafetensorsEntry& entry) {
  return (entry.dtype && is_weight_type(*entry.dtype)) || entry.stored == powers_of_two;
}

Shape shape_of_scales(const Shape& matrix, const HuggingFaceBlocks& blocks) {
  if (blocks.rows == 0) return {};
  return {blocks_of(matrix[0], blocks.rows), blocks_of(matrix[1], blocks.columns)};
}

void read_tensor(const ScaledTensor& tensor, const MatrixBox& box, bool transposed, float* out) {
  read_box(matrix_of(tensor.values), box, transposed, out);
  if (tensor.scales.entry == nullptr || box.elements() == 0) return;
  assert(!transposed);
  multiply(tensor, box, out);
}

namespace {

/// The rank's shard as a box of the whole parameter, without padding.
MatrixBox local_box(const ParamSpec& row, const Plan& plan, std::int64_t rank) {
  const std::int64_t width = row.shape.rank() == 2 ? row.global_shape[1] : 1;
  const std::int64_t first = shard_pieces(row, plan.mesh, rank).front().from;
  const bool padded = row.kind == ParamKind::token_embedding || row.kind == ParamKind::head;
  const std::int64_t last = padded ? plan.model.vocab : row.global_shape[0];
  MatrixBox box{.row = first / width,
                .rows = row.shape[0],
                .column = first % width,
                .columns = row.shape.rank() == 2 ? row.shape[1] : 1};
  box.rows = std::clamp<std::int64_t>(last - box.row, 0, box.rows);
  return box;
}

/// Reads this rank's part of each of its experts into `share`.
void read_experts(const StoredWeights& weights, const ParamSpec& row, const Plan& plan,
                  std::int64_t rank, float* share) {
  const std::int64_t width = row.global_shape[2];
  const std::int64_t first = shard_pieces(row, plan.mesh, rank).front().from;
  MatrixBox box{
      .row = first / width, .rows = row.shape[1], .column = first % width, .columns = row.shape[2]};
  for (std::int64_t expert = 0; expert < row.shape[0]; ++expert) {
    weights.read(row.name, box, share + expert * box.elements());
    box.row += row.global_shape[1];
  }
}

}  // namespace

void load_weights(const StoredWeights& weights, const Plan& plan, std::int64_t rank,
                  ParamStore& store) {
  const std::vector<ParamSpec>& table = plan.stage_of(rank).parameters;
  std::vector<float> share;  // the rank's shard of a parameter; it may own less
  for (int i = 0; i < static_cast<int>(table.size()); ++i) {
    const ParamSpec& row = table[static_cast<std::size_t>(i)];
    const Slice own = store.owned(i);
    if (own.length() == 0) continue;
    share.assign(static_cast<std::size_t>(row.shape.numel()), 0.0F);
    if (row.shape.rank() == 3) {
      read_experts(weights, row, plan, rank, share.data());
    } else if (const MatrixBox box = local_box(row, plan, rank); box.rows > 0) {
      weights.read(row.name, box, share.data());
    }
    const HostValues master(store.master(i));
    store_floats(share.data() + own.begin, master.values());
    master.store();
  }
}

void load_weights(const std::filesystem::path& directory, const Plan& plan, std::int64_t rank,
                  ParamStore& store) {
  load_weights(HuggingFaceWeights(directory, plan.model), plan, rank, store);
}

}  // namespace trainctl
