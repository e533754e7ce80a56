#include "ops/cpu/matmul/products.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

/// Converts a block of a matrix (in its layout in memory) to fp32 at `to`.
template <class T>
Tensor widen(const Tensor& matrix, Range rows, Range columns, float* to) {
  const T* from = matrix.as<T>() + rows.begin * matrix.columns() + columns.begin;
  const std::int64_t width = columns.count();
  parallel_for(rows.count(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const T* source = from + row * matrix.columns();
      float* target = to + row * width;
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) target[i] = to_float(source[i]);
    }
  });
  return Tensor{to, Shape{rows.count(), width}, DType::f32, DeviceKind::cpu};
}

/// c = sums + bias, or c += sums.
template <class Out>
void store(const Matmul& args, Range rows, Range columns, const float* sums) {
  const std::int64_t width = columns.count();
  const float* bias = args.bias.empty() ? nullptr : args.bias.as<float>() + columns.begin;
  parallel_for(rows.count(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      Out* c = args.c.as<Out>() + (rows.begin + row) * args.c.columns() + columns.begin;
      const float* sum = sums + row * width;
      for (std::int64_t i = 0; i < width; ++i) {
        const float before = args.accumulate ? to_float(c[i]) : bias != nullptr ? bias[i] : 0.0F;
        c[i] = from_float<Out>(before + sum[i]);
      }
    }
  });
}

/// The sizes of converted blocks: two blocks of edge x depth values, and edge x edge sums.
struct ConvertedBlocks {
  std::int64_t edge = 256;
  std::int64_t depth = 1024;
  std::int64_t floats() const { return (2 * depth + edge) * edge; }
};

ConvertedBlocks cut_of(std::int64_t scratch_bytes) {
  ConvertedBlocks cut;
  while (cut.edge > 16 && cut.floats() * 4 > scratch_bytes) cut = {cut.edge / 2, cut.depth / 2};
  return cut;
}

/// T is the type of the operands.
template <class T>
class Blocks {
 public:
  Blocks(const OpContext& context, const Matmul& args)
      : args_(args), s_(shape_of(args)), cut_(cut_of(context.scratch_bytes)), inner_(context) {
    a_ = reinterpret_cast<float*>(context.scratch);
    b_ = a_ + cut_.edge * cut_.depth;
    sums_ = b_ + cut_.edge * cut_.depth;
    inner_.scratch += cut_.floats() * 4;
    inner_.scratch_bytes = std::max<std::int64_t>(0, inner_.scratch_bytes - cut_.floats() * 4);
  }

  void run() const {
    for (std::int64_t row = 0; row < s_.m; row += cut_.edge) {
      for (std::int64_t column = 0; column < s_.n; column += cut_.edge) {
        multiply({row, std::min(row + cut_.edge, s_.m)},
                 {column, std::min(column + cut_.edge, s_.n)});
      }
    }
  }

 private:
  void multiply(Range rows, Range columns) const {
    const Tensor sums{sums_, Shape{rows.count(), columns.count()}, DType::f32, DeviceKind::cpu};
    for (std::int64_t begin = 0; begin < s_.k; begin += cut_.depth) {
      const Range depth{begin, std::min(begin + cut_.depth, s_.k)};
      const bool ta = s_.transpose_a;
      const bool tb = s_.transpose_b;
      matmul_library(inner_,
                     {.a = widen<T>(args_.a, ta ? depth : rows, ta ? rows : depth, a_),
                      .b = widen<T>(args_.b, tb ? columns : depth, tb ? depth : columns, b_),
                      .c = sums,
                      .transpose_a = ta,
                      .transpose_b = tb,
                      .accumulate = begin > 0});
    }
    with_element_type(args_.c.dtype,
                      [&](auto out) { store<decltype(out)>(args_, rows, columns, sums_); });
  }

  const Matmul& args_;
  MatmulShape s_;
  ConvertedBlocks cut_;
  OpContext inner_;
  float *a_, *b_, *sums_;
};

}  // namespace

void matmul_widened(const OpContext& context, const Matmul& args) {
  if (args.a.dtype == DType::bf16) {
    Blocks<bf16>(context, args).run();
  } else {
    Blocks<fp16>(context, args).run();
  }
}

}  // namespace trainctl
