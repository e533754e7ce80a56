#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

/// The row to normalise: x, or the sum of x and the residual, which is stored first.
template <class T>
const T* input_row(const NormForward& args, std::int64_t row) {
  const std::int64_t hidden = args.x.columns();
  const T* x = args.x.as<T>() + row * hidden;
  if (args.residual.empty()) return x;
  const T* residual = args.residual.as<T>() + row * hidden;
  T* sum = args.sum.as<T>() + row * hidden;
  for (std::int64_t i = 0; i < hidden; ++i) {
    const double scaled = static_cast<double>(args.x_factor) * to_float(x[i]);
    sum[i] = from_float<T>(static_cast<float>(scaled + to_float(residual[i])));
  }
  return sum;
}

/// The factor that multiplies normalised value `i` of a row.
double factor_at(const Tensor& weight, bool zero_centered, std::int64_t i) {
  return weight.empty() ? 1.0 : weight.as<float>()[i] + double{weight_offset(zero_centered)};
}

}  // namespace

void norm_sums_plain(const OpContext&, const NormSums& args) {
  with_element_type(args.x.dtype, [&]<class T>(T) {
    const std::int64_t hidden = args.x.columns();
    for (std::int64_t row = 0; row < args.x.rows(); ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < hidden; ++i) {
        const double x = to_float(args.x.as<T>()[row * hidden + i]);
        sum += args.dy.empty() ? x * x
                               : x * to_float(args.dy.as<T>()[row * hidden + i]) *
                                     factor_at(args.weight, args.zero_centered, i);
      }
      args.sums.as<float>()[row] = static_cast<float>(sum);
    }
  });
}

void norm_forward_plain(const OpContext&, const NormForward& args) {
  with_element_type(args.x.dtype, [&]<class T>(T) {
    const bool layer = args.kind == NormKind::layer_norm;
    const std::int64_t hidden = args.x.columns();
    for (std::int64_t row = 0; row < args.x.rows(); ++row) {
      const T* x = input_row<T>(args, row);
      double mean = 0;
      for (std::int64_t i = 0; layer && i < hidden; ++i) mean += to_float(x[i]);
      mean /= static_cast<double>(hidden);
      double variance = 0;
      for (std::int64_t i = 0; i < hidden; ++i) variance += std::pow(to_float(x[i]) - mean, 2);
      variance /= static_cast<double>(hidden);
      if (!args.sums.empty()) {
        variance = args.sums.as<float>()[row] / static_cast<double>(args.features);
      }
      const double rstd = 1.0 / std::sqrt(variance + args.epsilon);
      if (layer) args.mean.as<float>()[row] = static_cast<float>(mean);
      args.rstd.as<float>()[row] = static_cast<float>(rstd);
      for (std::int64_t i = 0; i < hidden; ++i) {
        const double z = (to_float(x[i]) - mean) * rstd;
        double y = z * factor_at(args.weight, args.zero_centered, i);
        if (layer) y += args.bias.as<float>()[i];
        args.y.as<T>()[row * hidden + i] = from_float<T>(static_cast<float>(y));
      }
    }
  });
}

void norm_backward_plain(const OpContext&, const NormBackward& args) {
  with_element_type(args.x.dtype, [&]<class T>(T) {
    const bool layer = args.kind == NormKind::layer_norm;
    const std::int64_t hidden = args.x.columns();
    for (std::int64_t row = 0; row < args.x.rows(); ++row) {
      const std::int64_t at = row * hidden;
      const T* x = args.x.as<T>() + at;
      const T* dy = args.dy.as<T>() + at;
      const double mean = layer ? args.mean.as<float>()[row] : 0.0F;
      const double rstd = args.rstd.as<float>()[row];
      double g_mean = 0;  // only for layer_norm
      double gz_mean = 0;
      for (std::int64_t i = 0; i < hidden; ++i) {
        const double z = (to_float(x[i]) - mean) * rstd;
        const double g = to_float(dy[i]) * factor_at(args.weight, args.zero_centered, i);
        if (layer) g_mean += g / static_cast<double>(hidden);
        gz_mean += g * z / static_cast<double>(hidden);
        if (!args.dweight.empty()) {
          args.dweight.as<float>()[i] += static_cast<float>(to_float(dy[i]) * z);
        }
        if (layer) args.dbias.as<float>()[i] += to_float(dy[i]);
      }
      if (!args.sums.empty()) {
        gz_mean = rstd * args.sums.as<float>()[row] / static_cast<double>(args.features);
      }
      for (std::int64_t i = 0; i < hidden; ++i) {
        const double z = (to_float(x[i]) - mean) * rstd;
        const double g = to_float(dy[i]) * factor_at(args.weight, args.zero_centered, i);
        double dx = rstd * (g - g_mean - z * gz_mean);
        if (!args.d_residual.empty()) dx += to_float(args.d_residual.as<T>()[at + i]);
        args.dx.as<T>()[at + i] = from_float<T>(static_cast<float>(dx));
      }
    }
  });
}

}  // namespace trainctl
