// Learning rate and weight decay as pure functions of the step, with Megatron-Core's
// OptimizerParamScheduler rules (counting steps instead of samples).
#pragma once

#include <cstdint>

#include "config/schema/config.h"

namespace trainctl {

/// The learning rate of the update after `step` completed updates (0 for the first), which is
/// counted like Megatron's num_steps. A run that passes through the schedule at another pace may be
/// between two steps (SchedulePace::at).
double learning_rate(const LrScheduleConfig& schedule, std::int64_t total_steps, double step);
/// The weight decay of the update after `step` completed updates. It rises from start to end over
/// weight_decay_incr_steps, by default `total_steps`. As in Megatron, the first update uses the
/// start, and the first update with the end follows `weight_decay_incr_steps` completed ones, so a
/// run of exactly this length stops one step before it.
double weight_decay(const OptimizerConfig& optimizer, std::int64_t total_steps, double step);

}  // namespace trainctl
