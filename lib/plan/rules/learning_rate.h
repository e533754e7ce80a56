// Learning rate and weight decay as pure functions of the step, with Megatron-Core's
// OptimizerParamScheduler rules (counting steps instead of samples).
#pragma once

#include <cstdint>

#include "config/schema/config.h"

namespace trainctl {

/// Rate of the update after `step` completed updates (0 for the first), counted as Megatron's
/// num_steps.
double learning_rate(const LrScheduleConfig& schedule, std::int64_t total_steps, std::int64_t step);
/// The rate between two steps, for a run that goes through the schedule at another pace
/// (SchedulePace::at).
double learning_rate_at(const LrScheduleConfig& schedule, std::int64_t total_steps, double step);
/// Weight decay of the same update. It rises from start to end over weight_decay_incr_steps, by
/// default `total_steps`: as in Megatron the first update has the start, and the update that
/// follows `weight_decay_incr_steps` completed ones is the first with the end. A run of just that
/// many steps therefore stops one step short of it.
double weight_decay(const OptimizerConfig& optimizer, std::int64_t total_steps, std::int64_t step);
double weight_decay_at(const OptimizerConfig& optimizer, std::int64_t total_steps, double step);

}  // namespace trainctl
