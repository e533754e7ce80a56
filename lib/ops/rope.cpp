#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/check.h"

namespace trainctl {

void rope(const OpContext& context, const Rope& args) {
  constexpr std::string_view op = "rope";
  check(is_matrix(args.x) && is_float(args.x), op, "x must be a matrix of fp32, bf16 or fp16",
        {{"x", args.x}});
  if (args.head_dim <= 0 || args.head_dim % 2 != 0 || args.x.columns() % args.head_dim != 0) {
    fail_check(
        op,
        "head_dim " + std::to_string(args.head_dim) + " must be even and divide the columns of x",
        {{"x", args.x}});
  }
  check(is_vector(args.position, args.x.rows(), DType::i32), op,
        "position must be an i32 vector with one element per row of x",
        {{"x", args.x}, {"position", args.position}});
  check(is_matrix(args.table, DType::f32) && args.table.columns() % 2 == 0 &&
            args.table.columns() <= args.head_dim,
        op, "table must be fp32 with an even number of columns, at most head_dim",
        {{"x", args.x}, {"table", args.table}});
  dispatch(context, &Kernels::rope, args, op);
}

namespace {

constexpr double two_pi = 6.283185307179586476925;

/// Llama 3's rule (Llama 3.1 report, section 3.4.2): wavelengths far below the original context are
/// kept, wavelengths far above it are stretched by `factor`, and frequencies in between are
/// interpolated.
double llama3_frequency(double frequency, const RopeScaling& scaling) {
  const double turns = scaling.original_positions * frequency / two_pi;
  if (turns > scaling.high_frequency_factor) return frequency;
  if (turns < scaling.low_frequency_factor) return frequency / scaling.factor;
  const double keep = (turns - scaling.low_frequency_factor) /
                      (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1.0 - keep) * frequency / scaling.factor + keep * frequency;
}

/// YaRN (Peng et al. 2023, section 3.2): like Llama 3's rule, but interpolates evenly by pair
/// index, between the pairs with beta_fast and beta_slow turns over the original context.
double yarn_frequency(double frequency, double pair, double size, const RopeScaling& scaling) {
  const auto pair_at = [&](double turns) {
    return size * std::log(scaling.original_positions / (turns * two_pi)) /
           (2 * std::log(scaling.theta));
  };
  double low = pair_at(scaling.beta_fast);
  double high = pair_at(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  const double ramp = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return frequency * (1 - ramp) + frequency / scaling.factor * ramp;
}

/// The frequency of `pair`, of `size` = R features.
double frequency_of(std::int64_t pair, double size, const RopeScaling& scaling) {
  const double at = static_cast<double>(pair);
  // A larger base stretches the slowest pair by alpha, and leaves the fastest unchanged.
  const double theta = scaling.type == RopeType::alpha
                           ? scaling.theta * std::pow(scaling.alpha, size / (size - 2))
                           : scaling.theta;
  const double frequency = std::pow(theta, -2.0 * at / size);
  switch (scaling.type) {
    case RopeType::linear: return frequency / scaling.factor;
    case RopeType::llama3: return llama3_frequency(frequency, scaling);
    case RopeType::yarn: return yarn_frequency(frequency, at, size, scaling);
    case RopeType::longrope: return frequency / scaling.pair_factor[static_cast<std::size_t>(pair)];
    case RopeType::none:
    case RopeType::alpha: break;
  }
  return frequency;
}

}  // namespace

namespace {

void check_table(std::string_view op, const Tensor& table) {
  check(table.device == DeviceKind::cpu && is_matrix(table, DType::f32) && table.columns() % 2 == 0,
        op, "table must be a host matrix of fp32 with an even number of columns",
        {{"table", table}});
}

}  // namespace

void fill_rope_table(const RopeScaling& scaling, const Tensor& table) {
  constexpr std::string_view op = "fill_rope_table";
  check_table(op, table);
  const std::int64_t size = table.columns();
  const std::int64_t pairs = size / 2;
  check(scaling.type != RopeType::longrope || std::ssize(scaling.pair_factor) == pairs, op,
        "longrope needs a factor for each pair of the table", {{"table", table}});
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const double frequency = frequency_of(pair, static_cast<double>(size), scaling);
    for (std::int64_t position = 0; position < table.rows(); ++position) {
      const double angle = static_cast<double>(position) * frequency;
      float* row = table.as<float>() + position * size;
      row[pair] = static_cast<float>(scaling.amplitude * std::cos(angle));
      row[pairs + pair] = static_cast<float>(scaling.amplitude * std::sin(angle));
    }
  }
}

void fill_temperature_table(double beta, double floor, double add, const Tensor& table) {
  check_table("fill_temperature_table", table);
  const std::int64_t pairs = table.columns() / 2;
  for (std::int64_t position = 0; position < table.rows(); ++position) {
    const double at = static_cast<double>(position) + add;
    const double factor = 1 + beta * std::log1p(std::floor(at / floor));
    float* row = table.as<float>() + position * 2 * pairs;
    std::fill_n(row, pairs, static_cast<float>(factor));
    std::fill_n(row + pairs, pairs, 0.0F);
  }
}

}  // namespace trainctl
