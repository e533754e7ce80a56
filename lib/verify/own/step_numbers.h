// The numbers of a step that all ranks share, computed from the configuration and the counters. No
// file in this folder includes the engine's arithmetic.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/schema/config.h"
#include "plan/tables/mesh.h"

namespace trainctl::own {

/// The counters that carry over from step to step.
struct Counters {
  std::int64_t updates = 0;
  std::int64_t good_steps = 0;
  std::int64_t hysteresis = 1;
  double loss_scale = 1;
};
/// The counters before the first step of a run whose initial loss scale is `loss_scale`.
Counters first_counters(const Config& config, double loss_scale);
/// The counters after a step, whose gradients were all finite or not.
Counters after_step(const Config& config, Counters counters, bool finite);

/// The learning rate for the update after `updates` completed ones.
double learning_rate(const LrScheduleConfig& schedule, std::int64_t steps, std::int64_t updates);
double weight_decay(const OptimizerConfig& optimizer, std::int64_t steps, std::int64_t updates);
/// 1 - beta^(updates + 1).
double bias_correction(double beta, std::int64_t updates);

/// The factor between a layout's summed gradients and the gradients of the mean loss.
std::int64_t gradient_factor(const ParallelConfig& parallel, const Mesh& mesh);

/// The factor applied to gradients: clips their norm (given without loss scale) to `limit`, unless
/// that is 0, and removes the loss scale.
double clip_coefficient(double norm, double limit, double loss_scale);

/// Whether weight decay applies to a parameter of this name: it does to matrices and tables, not to
/// norms and biases.
bool decays(std::string_view name);

/// The numbers known before the passes; norm, finiteness and the counters after the step.
struct StepNumbers {
  std::int64_t step = 0;  // 0 for the first
  double learning_rate = 0;
  double weight_decay = 0;
  double bias_correction1 = 1;
  double bias_correction2 = 1;
  double loss_factor = 0;   // factor of a single rank's gradients
  double token_factor = 0;  // factor for tokens, of a single rank
  Counters before{};
  Counters after{};
  double norm = 0;  // norm of the recorded gradients, without the loss scale
  bool finite = true;
};
/// Starts with `counters`, those before the step. Leaves norm, finite, `after` and the factors
/// unset.
StepNumbers begin_step(const Config& config, std::int64_t step, const Counters& counters);

}  // namespace trainctl::own
