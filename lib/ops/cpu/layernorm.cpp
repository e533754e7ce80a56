#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/add_residual.h"
#include "ops/cpu/vector/row_partials.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

template <class T>
float mean_of(const T* x, std::int64_t hidden) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < hidden; ++i) total += to_float(x[i]);
  return total / static_cast<float>(hidden);
}

template <class T>
float variance_of(const T* x, float mean, std::int64_t hidden) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float centred = to_float(x[i]) - mean;
    total += centred * centred;
  }
  return total / static_cast<float>(hidden);
}

template <class T>
void forward(const LayerNormForward& args) {
  const std::int64_t hidden = args.x.columns();
  const float* weight = args.weight.as<float>();
  const float* bias = args.bias.as<float>();
  parallel_for(args.x.rows(), row_grain(hidden), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const T* x = args.x.as<T>() + row * hidden;
      if (!args.residual.empty()) {
        T* sum = args.sum.as<T>() + row * hidden;
        add_residual(x, args.residual.as<T>() + row * hidden, sum, hidden);
        x = sum;
      }
      const float mean = mean_of(x, hidden);
      const float rstd = 1.0F / std::sqrt(variance_of(x, mean, hidden) + args.epsilon);
      args.mean.as<float>()[row] = mean;
      args.rstd.as<float>()[row] = rstd;
      T* y = args.y.as<T>() + row * hidden;
#pragma omp simd
      for (std::int64_t i = 0; i < hidden; ++i) {
        y[i] = from_float<T>((to_float(x[i]) - mean) * rstd * weight[i] + bias[i]);
      }
    }
  });
}

template <class T>
struct BackwardRow {
  const T* dy;
  const T* x;
  const T* d_residual;  // or null
  T* dx;
  float mean, rstd;
};

/// dx = rstd (g - mean(g) - z mean(g z)) with g = dy weight and z the normalised input; adds to the
/// two weight gradients.
template <class T>
void backward_row(const BackwardRow<T> row, const float* weight, float* dweight, float* dbias,
                  std::int64_t hidden) {
  float g_total = 0;
  float gz_total = 0;
#pragma omp simd reduction(+ : g_total, gz_total)
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float dy = to_float(row.dy[i]);
    const float z = (to_float(row.x[i]) - row.mean) * row.rstd;
    const float g = dy * weight[i];
    g_total += g;
    gz_total += g * z;
    dweight[i] += dy * z;
    dbias[i] += dy;
  }
  const float g_mean = g_total / static_cast<float>(hidden);
  const float gz_mean = gz_total / static_cast<float>(hidden);
  const auto gradient = [&](std::int64_t i) {
    const float z = (to_float(row.x[i]) - row.mean) * row.rstd;
    return row.rstd * (to_float(row.dy[i]) * weight[i] - g_mean - z * gz_mean);
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
void backward(const OpContext& context, const LayerNormBackward& args) {
  const std::int64_t hidden = args.x.columns();
  const RowPartials partials(context, args.x.rows(), 2 * hidden);
  partials.for_blocks([&](std::int64_t first, std::int64_t last, float* sums) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t at = row * hidden;
      const BackwardRow<T> operands{
          args.dy.as<T>() + at,
          args.x.as<T>() + at,
          args.d_residual.empty() ? nullptr : args.d_residual.as<T>() + at,
          args.dx.as<T>() + at,
          args.mean.as<float>()[row],
          args.rstd.as<float>()[row]};
      backward_row(operands, args.weight.as<float>(), sums, sums + hidden, hidden);
    }
  });
  partials.add_to(args.dweight.as<float>(), 0, hidden);
  partials.add_to(args.dbias.as<float>(), hidden, hidden);
}

}  // namespace

void layernorm_forward_cpu(const OpContext&, const LayerNormForward& args) {
  with_element_type(args.x.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void layernorm_backward_cpu(const OpContext& context, const LayerNormBackward& args) {
  with_element_type(args.x.dtype,
                    [&](auto element) { backward<decltype(element)>(context, args); });
}

}  // namespace trainctl
