#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/elements.h"
#include "ops/rows.h"

namespace trainctl {

namespace {

template <class T>
void spread(const MoveRows& args) {
  const std::int64_t features = args.x.shape[1];
  const std::int64_t topk = args.slot.shape[1];
  const T* x = args.x.as<T>();
  T* y = args.y.as<T>();
  const std::int32_t* slot = args.slot.as<std::int32_t>();
  const auto bytes = static_cast<std::size_t>(features) * sizeof(T);
  parallel_for(args.x.shape[0], row_grain(features), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * topk; i < end * topk; ++i) {
      if (slot[i] >= 0) std::memcpy(y + slot[i] * features, x + i / topk * features, bytes);
    }
  });
}

/// Elements of a row that are summed at a time, so that sums stay in registers or level-1 cache.
constexpr std::int64_t piece = 256;

template <class T>
void collect_row(const T* x, const std::int32_t* slots, std::int64_t topk, std::int64_t features,
                 T* y) {
  for (std::int64_t begin = 0; begin < features; begin += piece) {
    const std::int64_t count = std::min(piece, features - begin);
    std::array<float, piece> sums{};
    for (std::int64_t j = 0; j < topk; ++j) {
      if (slots[j] < 0) continue;
      const T* row = x + slots[j] * features + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) sums[i] += to_float(row[i]);
    }
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[begin + i] = from_float<T>(sums[i]);
  }
}

template <class T>
void collect(const MoveRows& args) {
  const std::int64_t features = args.y.shape[1];
  const std::int64_t topk = args.slot.shape[1];
  const std::int32_t* slot = args.slot.as<std::int32_t>();
  parallel_for(args.y.shape[0], row_grain(features), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      collect_row(args.x.as<T>(), slot + t * topk, topk, features, args.y.as<T>() + t * features);
    }
  });
}

float row_factor(float weight, bool sigmoid) {
  return sigmoid ? 1 / (1 + std::exp(-weight)) : weight;
}

template <class T>
void scale(const ScaleRows& args) {
  const std::int64_t features = args.x.shape[1];
  parallel_for(args.x.shape[0], row_grain(features), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float weight = row_factor(args.weight.as<float>()[row], args.sigmoid);
      const T* x = args.x.as<T>() + row * features;
      T* y = args.y.as<T>() + row * features;
#pragma omp simd
      for (std::int64_t i = 0; i < features; ++i) y[i] = from_float<T>(weight * to_float(x[i]));
    }
  });
}

template <class T>
void scale_backward(const ScaleRows& args) {
  const std::int64_t features = args.x.shape[1];
  parallel_for(args.x.shape[0], row_grain(features), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float weight = row_factor(args.weight.as<float>()[row], args.sigmoid);
      const T* x = args.x.as<T>() + row * features;
      const T* dy = args.dy.as<T>() + row * features;
      T* dx = args.dx.as<T>() + row * features;
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t i = 0; i < features; ++i) {
        const float d = to_float(dy[i]);
        dot += d * to_float(x[i]);
        dx[i] = from_float<T>(weight * d);
      }
      args.d_weight.as<float>()[row] = args.sigmoid ? dot * weight * (1 - weight) : dot;
    }
  });
}

template <class T>
void add_bias(const BiasRows& args) {
  const std::int64_t features = args.y.shape[1];
  const float* bias = args.bias.as<float>();
  parallel_for(args.y.shape[0], row_grain(features), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float weight = args.weight.as<float>()[row];
      T* y = args.y.as<T>() + row * features;
#pragma omp simd
      for (std::int64_t i = 0; i < features; ++i) {
        y[i] = from_float<T>(to_float(y[i]) + weight * bias[i]);
      }
    }
  });
}

/// A part is some columns of all rows, so that sums are independent of the number of threads.
template <class T>
void bias_sum(const BiasRows& args) {
  const std::int64_t features = args.dy.shape[1];
  const std::int64_t rows = args.dy.shape[0];
  const std::int64_t parts = (features + piece - 1) / piece;
  parallel_for(parts, row_grain(rows * piece), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = first * piece; begin < std::min(last * piece, features);
         begin += piece) {
      const std::int64_t count = std::min(piece, features - begin);
      std::array<float, piece> sums{};
      for (std::int64_t row = 0; row < rows; ++row) {
        const float weight = args.weight.as<float>()[row];
        const T* dy = args.dy.as<T>() + row * features + begin;
#pragma omp simd
        for (std::int64_t i = 0; i < count; ++i) sums[i] += weight * to_float(dy[i]);
      }
      float* sum = args.d_bias.as<float>() + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) sum[i] += sums[i];
    }
  });
}

template <class T>
void bias_backward(const BiasRows& args) {
  bias_sum<T>(args);
  if (args.d_weight.empty()) return;
  const std::int64_t features = args.dy.shape[1];
  const float* bias = args.bias.as<float>();
  parallel_for(args.dy.shape[0], row_grain(features), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* dy = args.dy.as<T>() + row * features;
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t i = 0; i < features; ++i) dot += to_float(dy[i]) * bias[i];
      args.d_weight.as<float>()[row] += dot;
    }
  });
}

}  // namespace

void spread_rows_cpu(const OpContext&, const MoveRows& args) {
  with_element_type(args.x.dtype, [&](auto element) { spread<decltype(element)>(args); });
}

void collect_rows_cpu(const OpContext&, const MoveRows& args) {
  with_element_type(args.x.dtype, [&](auto element) { collect<decltype(element)>(args); });
}

void scale_rows_cpu(const OpContext&, const ScaleRows& args) {
  with_element_type(args.x.dtype, [&](auto element) { scale<decltype(element)>(args); });
}

void scale_rows_backward_cpu(const OpContext&, const ScaleRows& args) {
  with_element_type(args.x.dtype, [&](auto element) { scale_backward<decltype(element)>(args); });
}

void bias_rows_cpu(const OpContext&, const BiasRows& args) {
  with_element_type(args.y.dtype, [&](auto element) { add_bias<decltype(element)>(args); });
}

void bias_rows_backward_cpu(const OpContext&, const BiasRows& args) {
  with_element_type(args.dy.dtype, [&](auto element) { bias_backward<decltype(element)>(args); });
}

namespace {

/// Row `index - first_row` of a table, or null if this shard does not have it.
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
void forward(const EmbeddingArgs& args) {
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

/// Each thread has some columns and processes all tokens in order, so that sums are independent of
/// the number of threads.
template <class T>
void backward(const EmbeddingArgs& args) {
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

void embedding_forward_cpu(const OpContext&, const EmbeddingArgs& args) {
  with_element_type(args.table.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void embedding_backward_cpu(const OpContext&, const EmbeddingArgs& args) {
  with_element_type(args.dy.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

namespace {

constexpr std::int64_t width = 4096;    // columns summed together, so that sums stay in cache
constexpr std::int64_t run_rows = 128;  // rows per partial sum, so that rounding errors grow slowly

/// Adds `rows` rows of `columns` <= width columns, starting at dy, to db. Four rows are added at a
/// time, so that sums are read and written once for these, and memory is read at four places. Each
/// column is still summed in the order of the rows.
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

/// Each thread has some columns and adds rows in order, so results do not depend on threads.
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
