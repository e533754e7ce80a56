#include "ops/rope.h"

#include <cmath>
#include <string>

#include "ops/check.h"

namespace trainctl {

void rope(const OpContext& context, const Rope& args) {
  constexpr std::string_view op = "rope";
  check(!args.x.empty() && is_float(args.x) && args.x.shape.rank() == 2, op,
        "x must be a matrix of fp32, bf16 or fp16", {{"x", args.x}});
  if (args.head_dim <= 0 || args.head_dim % 2 != 0 || args.x.columns() % args.head_dim != 0) {
    fail_check(
        op,
        "head_dim " + std::to_string(args.head_dim) + " must be even and divide the columns of x",
        {{"x", args.x}});
  }
  check(is_vector(args.position, args.x.rows(), DType::i32), op,
        "position must be an i32 vector with one element per row of x",
        {{"x", args.x}, {"position", args.position}});
  check(!args.table.empty() && args.table.dtype == DType::f32 && args.table.shape.rank() == 2 &&
            args.table.columns() == args.head_dim,
        op, "table must be fp32 with head_dim columns", {{"x", args.x}, {"table", args.table}});
  dispatch(context, &Kernels::rope, args, op);
}

namespace {

constexpr double two_pi = 6.283185307179586476925;

/// Llama 3's rule: wavelengths far below the original context stay, those far above it are
/// stretched by `factor`, and between the two the frequency is interpolated.
double scaled_frequency(double frequency, const RopeScaling& scaling) {
  if (scaling.factor <= 1.0) return frequency;
  const double turns = scaling.original_positions * frequency / two_pi;
  if (turns > scaling.high_frequency_factor) return frequency;
  if (turns < scaling.low_frequency_factor) return frequency / scaling.factor;
  const double keep = (turns - scaling.low_frequency_factor) /
                      (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1.0 - keep) * frequency / scaling.factor + keep * frequency;
}

}  // namespace

void fill_rope_table(const RopeScaling& scaling, const Tensor& table) {
  check(!table.empty() && table.device == DeviceKind::cpu && table.dtype == DType::f32 &&
            table.shape.rank() == 2 && table.columns() % 2 == 0,
        "fill_rope_table", "table must be a host matrix of fp32 with an even number of columns",
        {{"table", table}});
  const std::int64_t head_dim = table.columns();
  const std::int64_t pairs = head_dim / 2;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim);
    const double frequency = scaled_frequency(std::pow(scaling.theta, exponent), scaling);
    for (std::int64_t position = 0; position < table.rows(); ++position) {
      const double angle = static_cast<double>(position) * frequency;
      float* row = table.as<float>() + position * head_dim;
      row[pair] = static_cast<float>(std::cos(angle));
      row[pairs + pair] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace trainctl
