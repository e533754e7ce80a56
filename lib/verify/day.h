// The day of a free run: train, evaluate, save in the background, train on, evaluate, export. Its
// length, and the configuration and the plan by which a layout has it.
#pragma once

#include <cstdint>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

struct Day {
  std::int64_t steps = 0;
  std::int64_t noon = 0;  // steps before the first evaluation and the checkpoint

  /// Whether gradients are compared: of the first two steps, and of the two after noon. Of all
  /// others loss and norm are.
  bool has_gradients(std::int64_t step) const {
    return step == 1 || step == 2 || step == noon + 1 || step == noon + 2;
  }
};

/// A day of at least `steps` steps, long enough for the loader to use the memory of each step that
/// it prepares ahead more than twice.
Day day_of(const Config& config, std::int64_t steps);

/// The configuration of a layout, or of one rank, with learning rate, weight decay and a ramp that
/// move and come to their ends within the day, the ramp after noon: those that the file gives two
/// steps before its end, those that follow from the length of the run with it. A checkpoint at
/// noon, in the background.
Config config_of_day(Config config, const Day& day);

/// The plan of that configuration on the ranks of `plan`, for a run that has `done` behind it.
/// Throws Error{config} where it is not legal.
Plan plan_of_day(const Config& config, const Plan& plan, const Progress& done = {});

}  // namespace trainctl
