#include "verify/own/step_numbers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainctl::own {

namespace {

/// Half a cosine wave: falls from 1 to 0 as `part` grows from 0 to 1.
double half_wave(double part) { return (1 + std::cos(part * std::numbers::pi)) / 2; }

/// The remaining share of max_lr - min_lr after `part` of the final decay phase.
double left_of_last_phase(DecayStyle style, double part) {
  if (style == "linear") return 1 - part;
  if (style == "cosine") return half_wave(part);
  return style == "exponential" ? 2 * std::exp2(-part) - 1 : 1 - std::sqrt(part);
}

/// The movement of the loss scale by section precision, without its initial value.
struct ScaleRule {
  double growth = 1;
  double backoff = 1;
  double least = 1;
  std::int64_t window = 1;
  std::int64_t hysteresis = 1;
};

ScaleRule scale_rule(const Config& config) {
  const PrecisionConfig& precision = config.precision;
  ComputeType products = precision.compute;
  if (precision.enable_autocast) products = precision.autocast_dtype.value_or(products);
  const bool moves = precision.dynamic_loss_scale.value_or(products == ComputeType::fp16);
  if (config.hooks.grad_scale == "none") return {};
  if (precision.loss_scale) return {.least = *precision.loss_scale};
  if (!moves) return {};
  return {.growth = precision.loss_scale_growth,
          .backoff = precision.loss_scale_backoff,
          .least = precision.min_loss_scale,
          .window = precision.loss_scale_window,
          .hysteresis = precision.loss_scale_hysteresis};
}

bool splits_model(const ParallelConfig& parallel) {
  if (!parallel.parallel_mode) return true;
  return *parallel.parallel_mode != ParallelMode::stand_alone &&
         *parallel.parallel_mode != ParallelMode::data_parallel;
}

}  // namespace

Counters first_counters(const Config& config, double loss_scale) {
  return {.hysteresis = scale_rule(config).hysteresis, .loss_scale = loss_scale};
}

Counters after_step(const Config& config, Counters counters, bool finite) {
  const ScaleRule rule = scale_rule(config);
  if (!finite) {
    counters.good_steps = 0;
    if (counters.hysteresis > 0) --counters.hysteresis;
    if (counters.hysteresis == 0) {
      counters.loss_scale = std::max(rule.least, counters.loss_scale * rule.backoff);
    }
    return counters;
  }
  ++counters.updates;
  if (++counters.good_steps >= rule.window) {
    counters.good_steps = 0;
    counters.hysteresis = rule.hysteresis;
    const double grown = counters.loss_scale * rule.growth;
    if (grown <= std::exp2(64)) counters.loss_scale = grown;
  }
  return counters;
}

double learning_rate(const LrScheduleConfig& schedule, std::int64_t steps, std::int64_t updates) {
  const auto now = static_cast<double>(updates);
  const auto warm = static_cast<double>(schedule.warmup_steps);
  const auto end = static_cast<double>(schedule.decay_steps.value_or(steps));
  const double highest = schedule.max_lr;
  const double lowest = schedule.min_lr;
  if (warm > 0 && now <= warm) {
    return schedule.init_lr + now / warm * (highest - schedule.init_lr);
  }
  if (schedule.style == LrStyle::constant) return highest;
  if (now > end) return lowest;
  if (schedule.style == LrStyle::inverse_square_root) {
    return std::max(lowest, highest * std::sqrt(std::max(warm, 1.0) / std::max(now, 1.0)));
  }
  double left = 1;
  if (schedule.style == LrStyle::wsd) {
    const auto last = static_cast<double>(schedule.wsd_decay_steps.value_or(0));
    const double into = now - (end - last);
    if (into > 0 && last > 0) left = left_of_last_phase(schedule.wsd_decay_style, into / last);
  } else {
    const double part = end > warm ? (now - warm) / (end - warm) : 1;
    left = schedule.style == LrStyle::cosine ? half_wave(part) : 1 - part;
  }
  return lowest + left * (highest - lowest);
}

double weight_decay(const OptimizerConfig& optimizer, std::int64_t steps, std::int64_t updates) {
  const double first = optimizer.start_weight_decay.value_or(optimizer.weight_decay);
  const double last = optimizer.end_weight_decay.value_or(optimizer.weight_decay);
  const std::int64_t rise = optimizer.weight_decay_incr_steps.value_or(steps);
  const bool is_constant = optimizer.weight_decay_incr_style == "constant";
  if (is_constant || rise < 1 || updates > rise) return last;
  double part = static_cast<double>(updates) / static_cast<double>(rise);
  if (optimizer.weight_decay_incr_style == "cosine") part = 1 - half_wave(part);
  return first + part * (last - first);
}

double bias_correction(double beta, std::int64_t updates) {
  double power = 1;
  for (std::int64_t i = 0; i <= updates; ++i) power *= beta;
  return 1 - power;
}

std::int64_t gradient_factor(const ParallelConfig& parallel, const Mesh& mesh) {
  std::int64_t factor = 1;
  if (!parallel.gradients_mean.value_or(true)) factor *= mesh.dp * mesh.cp;
  if (!parallel.loss_repeated_mean && splits_model(parallel)) factor *= mesh.tp;
  return factor;
}

double clip_coefficient(double norm, double limit, double loss_scale) {
  return (limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1) / loss_scale;
}

bool decays(std::string_view name) {
  return name.ends_with(".weight") && name.find("norm") == std::string_view::npos &&
         !name.ends_with(".sinks.weight");
}

StepNumbers begin_step(const Config& config, std::int64_t step, const Counters& counters) {
  const std::int64_t steps = config.train.steps;
  return {.step = step,
          .learning_rate = learning_rate(config.lr_schedule, steps, counters.updates),
          .weight_decay = weight_decay(config.optimizer, steps, counters.updates),
          .bias_correction1 = bias_correction(config.optimizer.beta1, counters.updates),
          .bias_correction2 = bias_correction(config.optimizer.beta2, counters.updates),
          .before = counters,
          .after = counters};
}

}  // namespace trainctl::own
