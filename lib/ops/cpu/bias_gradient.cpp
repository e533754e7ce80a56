#include <array>

#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

constexpr std::int64_t width = 512;     // columns summed together: their sums stay in cache
constexpr std::int64_t run_rows = 128;  // rows per partial sum, so that rounding grows slowly

/// Adds rows [begin, end) of `columns` <= width columns, which start at dy, to db.
template <class T>
void add_run(const T* dy, std::int64_t row_length, std::int64_t rows, float* db,
             std::int64_t columns) {
  std::array<float, width> sums{};
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* from = dy + row * row_length;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i)
      sums[static_cast<std::size_t>(i)] += to_float(from[i]);
  }
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) db[i] += sums[static_cast<std::size_t>(i)];
}

/// Each thread has columns of its own and adds rows in order: the thread count changes no bit.
template <class T>
void sum_rows(const BiasGradient& args) {
  const std::int64_t rows = args.dy.rows();
  const std::int64_t features = args.dy.columns();
  const T* dy = args.dy.as<T>();
  float* db = args.db.as<float>();
  parallel_for(features, 64, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t column = first; column < last; column += width) {
      for (std::int64_t row = 0; row < rows; row += run_rows) {
        add_run(dy + row * features + column, features, std::min(run_rows, rows - row), db + column,
                std::min(width, last - column));
      }
    }
  });
}

}  // namespace

void bias_gradient_cpu(const OpContext&, const BiasGradient& args) {
  with_element_type(args.dy.dtype, [&](auto element) { sum_rows<decltype(element)>(args); });
}

}  // namespace trainctl
