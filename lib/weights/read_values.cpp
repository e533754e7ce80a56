#include "weights/read_values.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "base/fp16.h"

namespace trainctl {

namespace {

constexpr std::int64_t long_row = 64 << 10;  // bytes: reading it alone costs little more

template <class T>
void convert(const char* stored, std::int64_t count, float* to, std::int64_t stride) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, stored + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    to[i * stride] = to_float(value);
  }
}

/// Cuts the box into spans of at most elements_at_a_time, each of whole rows or part of one row,
/// and hands out every row of a span.
class BoxReader {
 public:
  BoxReader(const StoredMatrix& matrix, const MatrixBox& box, bool transposed, float* out)
      : matrix_(matrix), box_(box), transposed_(transposed), out_(out) {}

  void read() {
    const bool whole_rows = box_.columns == matrix_.width;
    const std::int64_t reach = whole_rows ? box_.columns : matrix_.width;
    const bool by_row = !whole_rows && box_.columns * size_of(matrix_.dtype) >= long_row;
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

  /// Rows and columns count from the box's corner.
  void read_span(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    const std::int64_t size = size_of(matrix_.dtype);
    const std::int64_t first = (box_.row + row) * matrix_.width + box_.column + column;
    const std::int64_t elements = (rows - 1) * matrix_.width + columns;
    held_.resize(static_cast<std::size_t>(elements * size));
    matrix_.bytes(first * size, held_);
    for (std::int64_t i = 0; i < rows; ++i) {
      const char* from = held_.data() + i * matrix_.width * size;
      float* to = transposed_ ? out_ + column * box_.rows + row + i
                              : out_ + (row + i) * box_.columns + column;
      convert_values(matrix_.dtype, from, columns, to, transposed_ ? box_.rows : 1);
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

}  // namespace trainctl
