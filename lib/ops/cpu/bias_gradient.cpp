#include <algorithm>

#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

constexpr std::int64_t width = 4096;    // columns summed together: their sums stay in cache
constexpr std::int64_t run_rows = 128;  // rows per partial sum, so that rounding grows slowly

/// Adds `rows` rows of `columns` <= width columns, which start at dy, to db. Four rows at a time,
/// since their sums are then read and written once and memory is read in four places; each column
/// is summed in the order of its rows all the same.
template <class T>
void add_run(const T* dy, std::int64_t row_length, std::int64_t rows, float* db,
             std::int64_t columns) {
  alignas(64) float sums[width];
  std::fill(sums, sums + columns, 0.0F);
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const T* first = dy + row * row_length;
    const T* second = first + row_length;
    const T* third = second + row_length;
    const T* fourth = third + row_length;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) {
      const float sum = sums[i] + to_float(first[i]) + to_float(second[i]);
      sums[i] = sum + to_float(third[i]) + to_float(fourth[i]);
    }
  }
  for (; row < rows; ++row) {
    const T* from = dy + row * row_length;
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) sums[i] += to_float(from[i]);
  }
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) db[i] += sums[i];
}

/// Each thread has columns of its own and adds rows in order: the thread count changes no bit.
template <class T>
void sum_rows(const BiasGradient& args) {
  const std::int64_t rows = args.dy.rows();
  const std::int64_t features = args.dy.columns();
  const T* dy = args.dy.as<T>();
  float* db = args.db.as<float>();
  parallel_for(features, std::max<std::int64_t>(64, row_grain(rows)),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t column = first; column < last; column += width) {
                   for (std::int64_t row = 0; row < rows; row += run_rows) {
                     add_run(dy + row * features + column, features, std::min(run_rows, rows - row),
                             db + column, std::min(width, last - column));
                   }
                 }
               });
}

}  // namespace

void bias_gradient_cpu(const OpContext&, const BiasGradient& args) {
  with_element_type(args.dy.dtype, [&](auto element) { sum_rows<decltype(element)>(args); });
}

}  // namespace trainctl
