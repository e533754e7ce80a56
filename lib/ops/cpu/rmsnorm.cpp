#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/add_residual.h"
#include "ops/cpu/vector/row_partials.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

template <class T>
float mean_square_of(const T* x, std::int64_t hidden) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float value = to_float(x[i]);
    total += value * value;
  }
  return total / static_cast<float>(hidden);
}

template <class T>
void forward(const RmsNormForward& args) {
  const std::int64_t hidden = args.x.columns();
  const float* weight = args.weight.as<float>();
  parallel_for(args.x.rows(), row_grain(hidden), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const T* x = args.x.as<T>() + row * hidden;
      if (!args.residual.empty()) {
        T* sum = args.sum.as<T>() + row * hidden;
        add_residual(x, args.residual.as<T>() + row * hidden, sum, hidden);
        x = sum;
      }
      const float rstd = 1.0F / std::sqrt(mean_square_of(x, hidden) + args.epsilon);
      args.rstd.as<float>()[row] = rstd;
      T* y = args.y.as<T>() + row * hidden;
#pragma omp simd
      for (std::int64_t i = 0; i < hidden; ++i) {
        y[i] = from_float<T>(to_float(x[i]) * rstd * weight[i]);
      }
    }
  });
}

template <class T>
struct RmsBackwardRow {
  const T* dy;
  const T* x;
  const T* d_residual;  // or null
  T* dx;
  float rstd;
};

/// dx = rstd (g - z mean(g z)) with g = dy weight and z the normalised input; adds to the weight's
/// gradient.
template <class T>
void backward_row(const RmsBackwardRow<T> row, const float* weight, float* dweight,
                  std::int64_t hidden) {
  float gz_total = 0;
#pragma omp simd reduction(+ : gz_total)
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float dy = to_float(row.dy[i]);
    const float z = to_float(row.x[i]) * row.rstd;
    gz_total += dy * weight[i] * z;
    dweight[i] += dy * z;
  }
  const float factor = gz_total / static_cast<float>(hidden) * row.rstd;
  const auto gradient = [&](std::int64_t i) {
    return row.rstd * (to_float(row.dy[i]) * weight[i] - to_float(row.x[i]) * factor);
  };
  if (row.d_residual == nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < hidden; ++i) row.dx[i] = from_float<T>(gradient(i));
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < hidden; ++i) {
      row.dx[i] = from_float<T>(gradient(i) + to_float(row.d_residual[i]));
    }
  }
}

template <class T>
void backward(const OpContext& context, const RmsNormBackward& args) {
  const std::int64_t hidden = args.x.columns();
  const RowPartials partials(context, args.x.rows(), hidden);
  partials.for_blocks([&](std::int64_t first, std::int64_t last, float* sums) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t at = row * hidden;
      const RmsBackwardRow<T> operands{
          args.dy.as<T>() + at, args.x.as<T>() + at,
          args.d_residual.empty() ? nullptr : args.d_residual.as<T>() + at, args.dx.as<T>() + at,
          args.rstd.as<float>()[row]};
      backward_row(operands, args.weight.as<float>(), sums, hidden);
    }
  });
  partials.add_to(args.dweight.as<float>(), 0, hidden);
}

}  // namespace

void rmsnorm_forward_cpu(const OpContext&, const RmsNormForward& args) {
  with_element_type(args.x.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void rmsnorm_backward_cpu(const OpContext& context, const RmsNormBackward& args) {
  with_element_type(args.x.dtype,
                    [&](auto element) { backward<decltype(element)>(context, args); });
}

}  // namespace trainctl
