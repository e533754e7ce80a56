#include "plan/rules/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainctl {

namespace {

double cosine_fall(double x) { return 0.5 * (1.0 + std::cos(std::numbers::pi * x)); }

/// The remaining share of max - min at fraction `y` of WSD's last phase.
double wsd_remaining(DecayStyle style, double y) {
  if (style == "linear") return 1.0 - y;
  if (style == "cosine") return cosine_fall(y);
  return style == "exponential" ? 2.0 * std::pow(0.5, y) - 1.0 : 1.0 - std::sqrt(y);
}

double ratio(double part, std::int64_t whole) { return part / static_cast<double>(whole); }

}  // namespace

double learning_rate(const LrScheduleConfig& schedule, std::int64_t total_steps, double step) {
  const double span = schedule.max_lr - schedule.min_lr;
  const std::int64_t decay = schedule.decay_steps.value_or(total_steps);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  const auto end = static_cast<double>(decay);
  if (warmup > 0 && step <= warmup) {
    return schedule.init_lr +
           (schedule.max_lr - schedule.init_lr) * ratio(step, schedule.warmup_steps);
  }
  if (schedule.style == LrStyle::constant) return schedule.max_lr;
  if (step > end) return schedule.min_lr;
  const double x = end > warmup ? ratio(step - warmup, decay - schedule.warmup_steps) : 1.0;
  switch (schedule.style) {
    case LrStyle::constant: break;
    case LrStyle::linear: return schedule.min_lr + span * (1.0 - x);
    case LrStyle::cosine: return schedule.min_lr + span * cosine_fall(x);
    case LrStyle::inverse_square_root: {
      const double start = std::max(warmup, 1.0);
      const double now = std::max(step, 1.0);
      return std::max(schedule.min_lr, schedule.max_lr * std::sqrt(start) / std::sqrt(now));
    }
    case LrStyle::wsd: {
      const std::int64_t last_phase = schedule.wsd_decay_steps.value_or(0);
      const double into = step - static_cast<double>(decay - last_phase);
      if (into <= 0 || last_phase == 0) return schedule.max_lr;
      return schedule.min_lr +
             span * wsd_remaining(schedule.wsd_decay_style, ratio(into, last_phase));
    }
  }
  return schedule.max_lr;
}

double weight_decay(const OptimizerConfig& optimizer, std::int64_t total_steps, double step) {
  const double end = optimizer.end_weight_decay.value_or(optimizer.weight_decay);
  const double start = optimizer.start_weight_decay.value_or(optimizer.weight_decay);
  const std::int64_t rise = optimizer.weight_decay_incr_steps.value_or(total_steps);
  if (step > static_cast<double>(rise) || rise < 1) return end;
  const double x = ratio(step, rise);
  const WeightDecayStyle style = optimizer.weight_decay_incr_style;
  if (style == "linear") return start + (end - start) * x;
  if (style == "cosine") return start + (end - start) * cosine_fall(1.0 - x);
  return end;
}

}  // namespace trainctl
