#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

template <class T>
void rotate_head(T* x, const float* cosine, const float* sine, float sign, std::int64_t pairs) {
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float x1 = to_float(x[i]);
    const float x2 = to_float(x[pairs + i]);
    const float s = sign * sine[i];
    x[i] = from_float<T>(x1 * cosine[i] - x2 * s);
    x[pairs + i] = from_float<T>(x2 * cosine[i] + x1 * s);
  }
}

/// Rotates pairs of adjacent features.
template <class T>
void rotate_neighbours(T* x, const float* cosine, const float* sine, float sign,
                       std::int64_t pairs) {
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float x1 = to_float(x[2 * i]);
    const float x2 = to_float(x[2 * i + 1]);
    const float s = sign * sine[i];
    x[2 * i] = from_float<T>(x1 * cosine[i] - x2 * s);
    x[2 * i + 1] = from_float<T>(x2 * cosine[i] + x1 * s);
  }
}

template <class T>
void rotate(const Rope& args) {
  const std::int64_t columns = args.x.columns();
  const std::int64_t size = args.table.columns();
  const std::int64_t pairs = size / 2;
  const float sign = args.inverse ? -1.0F : 1.0F;
  parallel_for(args.x.rows(), row_grain(columns), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const float* table = args.table.as<float>() + args.position.as<std::int32_t>()[row] * size;
      T* x = args.x.as<T>() + row * columns;
      for (std::int64_t at = 0; at < columns; at += args.head_dim) {
        args.adjacent ? rotate_neighbours(x + at, table, table + pairs, sign, pairs)
                      : rotate_head(x + at, table, table + pairs, sign, pairs);
      }
    }
  });
}

}  // namespace

void rope_cpu(const OpContext&, const Rope& args) {
  with_element_type(args.x.dtype, [&](auto element) { rotate<decltype(element)>(args); });
}

}  // namespace trainctl
