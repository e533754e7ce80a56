#include "weights/scaled_tensor.h"

#include <cassert>
#include <vector>

#include "weights/read_values.h"

namespace trainctl {

namespace {

constexpr const char* scaled_type = "F8_E4M3";
constexpr const char* powers_of_two = "F8_E8M0";

StoredMatrix matrix_of(const FileTensor& found) {
  const SafetensorsFile* file = found.file;
  const SafetensorsEntry* entry = found.entry;
  const Shape& shape = entry->shape;
  const ByteFormat format = entry->stored == scaled_type     ? ByteFormat::e4m3
                            : entry->stored == powers_of_two ? ByteFormat::e8m0
                                                             : ByteFormat::none;
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

}  // namespace trainctl
