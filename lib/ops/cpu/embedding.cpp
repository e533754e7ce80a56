#include <algorithm>

#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

/// Row `index - first_row` of a table, or null where this shard does not hold it.
template <class T>
T* find_row(T* table, std::int64_t index, std::int64_t first_row, const Shape& shape) {
  const std::int64_t row = index - first_row;
  return row >= 0 && row < shape[0] ? table + row * shape[1] : nullptr;
}

template <class T>
void add_row(T* y, const T* row, std::int64_t hidden) {
#pragma omp simd
  for (std::int64_t i = 0; i < hidden; ++i) {
    y[i] = from_float<T>(to_float(y[i]) + to_float(row[i]));
  }
}

template <class T>
void forward(const EmbeddingForward& args) {
  const std::int64_t hidden = args.y.columns();
  const std::int32_t* indices = args.indices.as<std::int32_t>();
  parallel_for(args.y.rows(), row_grain(hidden), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      T* y = args.y.as<T>() + t * hidden;
      const T* row = find_row(args.table.as<T>(), indices[t], args.first_row, args.table.shape);
      if (args.accumulate) {
        if (row != nullptr) add_row(y, row, hidden);
      } else if (row == nullptr) {
        std::fill(y, y + hidden, T{});
      } else {
        std::copy(row, row + hidden, y);
      }
    }
  });
}

template <class T>
void add_part(float* to, const T* from, std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) to[i] += to_float(from[i]);
}

/// Each thread has columns of its own and goes through all tokens in order: the sums do not depend
/// on the thread count.
template <class T>
void backward(const EmbeddingBackward& args) {
  const std::int64_t hidden = args.dy.columns();
  const std::int64_t count = args.dy.rows();
  const std::int32_t* indices = args.indices.as<std::int32_t>();
  parallel_for(hidden, std::max<std::int64_t>(32, row_grain(count)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t t = 0; t < count; ++t) {
                   const T* dy = args.dy.as<T>() + t * hidden;
                   float* row = find_row(args.dtable.as<float>(), indices[t], args.first_row,
                                         args.dtable.shape);
                   if (row != nullptr) add_part(row, dy, begin, end);
                 }
               });
}

}  // namespace

void embedding_forward_cpu(const OpContext&, const EmbeddingForward& args) {
  with_element_type(args.table.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void embedding_backward_cpu(const OpContext&, const EmbeddingBackward& args) {
  with_element_type(args.dy.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
