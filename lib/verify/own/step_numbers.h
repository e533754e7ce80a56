// The numbers of a step that the whole model shares, from the configuration and from what was
// counted: computed apart from the engine, whose arithmetic no file of this room includes.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/schema/config.h"
#include "plan/tables/mesh.h"

namespace trainctl::own {

/// How the loss scale moves, by section precision; which scale is the first is not part of it.
struct ScaleRule {
  double growth = 1;
  double backoff = 1;
  double least = 1;
  std::int64_t window = 1;
  std::int64_t hysteresis = 1;
};
ScaleRule scale_rule(const Config& config);

/// The counters that carry over from step to step.
struct Counters {
  std::int64_t updates = 0;
  std::int64_t good_steps = 0;
  std::int64_t hysteresis = 1;
  double loss_scale = 1;
};
/// After a step whose gradients were all finite, or not.
Counters after_step(const ScaleRule& rule, Counters counters, bool finite);

/// The learning rate of the update that follows `updates` completed ones.
double learning_rate(const LrScheduleConfig& schedule, std::int64_t steps, std::int64_t updates);
double weight_decay(const OptimizerConfig& optimizer, std::int64_t steps, std::int64_t updates);
/// 1 - beta^(updates + 1).
double bias_correction(double beta, std::int64_t updates);

/// By what the gradients that a layout adds up are more than those of the mean loss.
std::int64_t gradient_factor(const ParallelConfig& parallel, const Mesh& mesh);

/// The factor for gradients: it brings their norm, which is without loss scale, to `limit` if it is
/// above (0 for no limit), and takes the scale out of them.
double clip_coefficient(double norm, double limit, double loss_scale);

/// Whether weight decay takes part of a parameter of this name: of matrices and tables, not of
/// norms and biases.
bool decays(std::string_view name);

/// The sums of the labels of a step, over the whole batch.
struct Labels {
  double weights = 0;
  double positions = 0;  // real ones
};

/// Everything before the passes, and what norm and clipping follow from.
struct StepNumbers {
  std::int64_t step = 0;  // 0 for the first
  double learning_rate = 0;
  double weight_decay = 0;
  double bias_correction1 = 1;
  double bias_correction2 = 1;
  double loss_factor = 0;   // of a single rank's gradients
  double token_factor = 0;  // the same
  Counters before{};
  Counters after{};
  double norm = 0;  // of the recorded gradients, without loss scale
  bool finite = true;
};
/// `counters`: before the step. Without norm, finite and the counters after it.
StepNumbers begin_step(const Config& config, std::int64_t step, const Counters& counters,
                       const Labels& labels);

}  // namespace trainctl::own
