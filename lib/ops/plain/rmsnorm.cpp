#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

template <class T>
void forward(const RmsNormForward& args) {
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
    double square = 0;
    for (std::int64_t i = 0; i < hidden; ++i) square += std::pow(to_float(x[i]), 2);
    const double rstd = 1.0 / std::sqrt(square / static_cast<double>(hidden) + args.epsilon);
    args.rstd.as<float>()[row] = static_cast<float>(rstd);
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double y = to_float(x[i]) * rstd * args.weight.as<float>()[i];
      args.y.as<T>()[row * hidden + i] = from_float<T>(static_cast<float>(y));
    }
  }
}

template <class T>
void backward(const RmsNormBackward& args) {
  const std::int64_t hidden = args.x.columns();
  const float* weight = args.weight.as<float>();
  for (std::int64_t row = 0; row < args.x.rows(); ++row) {
    const std::int64_t at = row * hidden;
    const T* x = args.x.as<T>() + at;
    const T* dy = args.dy.as<T>() + at;
    const double rstd = args.rstd.as<float>()[row];
    double gz_mean = 0;
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double z = to_float(x[i]) * rstd;
      gz_mean += static_cast<double>(to_float(dy[i])) * weight[i] * z;
      args.dweight.as<float>()[i] += static_cast<float>(to_float(dy[i]) * z);
    }
    gz_mean /= static_cast<double>(hidden);
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double g = static_cast<double>(to_float(dy[i])) * weight[i];
      double dx = rstd * (g - to_float(x[i]) * rstd * gz_mean);
      if (!args.d_residual.empty()) dx += to_float(args.d_residual.as<T>()[at + i]);
      args.dx.as<T>()[at + i] = from_float<T>(static_cast<float>(dx));
    }
  }
}

}  // namespace

void rmsnorm_forward_plain(const OpContext&, const RmsNormForward& args) {
  with_element_type(args.x.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void rmsnorm_backward_plain(const OpContext&, const RmsNormBackward& args) {
  with_element_type(args.x.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
