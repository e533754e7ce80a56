#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

template <class T>
void forward(const LayerNormForward& args) {
  const std::int64_t hidden = args.x.columns();
  for (std::int64_t row = 0; row < args.x.rows(); ++row) {
    const T* x = args.x.as<T>() + row * hidden;
    if (!args.residual.empty()) {
      const T* residual = args.residual.as<T>() + row * hidden;
      T* sum = args.sum.as<T>() + row * hidden;
      for (std::int64_t i = 0; i < hidden; ++i) {
        sum[i] = from_float<T>(to_float(x[i]) + to_float(residual[i]));
      }
      x = sum;
    }
    double mean = 0;
    for (std::int64_t i = 0; i < hidden; ++i) mean += to_float(x[i]);
    mean /= static_cast<double>(hidden);
    double variance = 0;
    for (std::int64_t i = 0; i < hidden; ++i) variance += std::pow(to_float(x[i]) - mean, 2);
    variance /= static_cast<double>(hidden);
    const double rstd = 1.0 / std::sqrt(variance + args.epsilon);
    args.mean.as<float>()[row] = static_cast<float>(mean);
    args.rstd.as<float>()[row] = static_cast<float>(rstd);
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double z = (to_float(x[i]) - mean) * rstd;
      const double y = z * args.weight.as<float>()[i] + args.bias.as<float>()[i];
      args.y.as<T>()[row * hidden + i] = from_float<T>(static_cast<float>(y));
    }
  }
}

template <class T>
void backward(const LayerNormBackward& args) {
  const std::int64_t hidden = args.x.columns();
  const float* weight = args.weight.as<float>();
  for (std::int64_t row = 0; row < args.x.rows(); ++row) {
    const std::int64_t at = row * hidden;
    const T* x = args.x.as<T>() + at;
    const T* dy = args.dy.as<T>() + at;
    const double mean = args.mean.as<float>()[row];
    const double rstd = args.rstd.as<float>()[row];
    double g_mean = 0;
    double gz_mean = 0;
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double z = (to_float(x[i]) - mean) * rstd;
      const double g = static_cast<double>(to_float(dy[i])) * weight[i];
      g_mean += g / static_cast<double>(hidden);
      gz_mean += g * z / static_cast<double>(hidden);
      args.dweight.as<float>()[i] += static_cast<float>(to_float(dy[i]) * z);
      args.dbias.as<float>()[i] += to_float(dy[i]);
    }
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double z = (to_float(x[i]) - mean) * rstd;
      const double g = static_cast<double>(to_float(dy[i])) * weight[i];
      double dx = rstd * (g - g_mean - z * gz_mean);
      if (!args.d_residual.empty()) dx += to_float(args.d_residual.as<T>()[at + i]);
      args.dx.as<T>()[at + i] = from_float<T>(static_cast<float>(dx));
    }
  }
}

}  // namespace

void layernorm_forward_plain(const OpContext&, const LayerNormForward& args) {
  with_element_type(args.x.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void layernorm_backward_plain(const OpContext&, const LayerNormBackward& args) {
  with_element_type(args.x.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
