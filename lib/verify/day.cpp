#include "verify/day.h"

#include <algorithm>

#include "base/error.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

/// Makes the steps that the file gives end two steps before the day does. An end that it leaves
/// open follows from the length of the run, as it does in training.
void shorten(LrScheduleConfig& schedule, std::int64_t end) {
  schedule.warmup_ratio.reset();  // warmup_steps has what it gave
  if (schedule.style == LrStyle::constant) {
    schedule.warmup_steps = std::min(schedule.warmup_steps, end - 1);
    return;
  }
  if (schedule.decay_steps) schedule.decay_steps = std::min(*schedule.decay_steps, end);
  schedule.warmup_steps = std::min(schedule.warmup_steps, end / 2);
  if (schedule.wsd_decay_steps) {
    schedule.wsd_decay_steps = std::min(*schedule.wsd_decay_steps,
                                        schedule.decay_steps.value_or(end) - schedule.warmup_steps);
  }
}

}  // namespace

Day day_of(const Config& config, std::int64_t steps) {
  const std::int64_t prepared = std::max<std::int64_t>(1, config.data.prefetch) + 1;
  const std::int64_t all = std::max(steps, 2 * prepared + 1);
  return {all, all / 2};
}

Config config_of_day(Config config, const Day& day) {
  const std::int64_t end = day.steps - 2;
  config.train.steps = day.steps;
  config.train.tokens.reset();
  config.train.epochs.reset();
  shorten(config.lr_schedule, end);
  OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.weight_decay_incr_steps) {
    optimizer.weight_decay_incr_steps = std::min(*optimizer.weight_decay_incr_steps, end);
  }
  // Every step has at least the first batch of a ramp.
  if (auto& ramp = config.train.rampup_batch_size; ramp && ramp->size() == 3) {
    (*ramp)[2] = std::min((*ramp)[2], (*ramp)[0] * end);
  }
  config.checkpoint.every = day.noon;
  config.checkpoint.asynchronous = true;
  return config;
}

Plan plan_of_day(const Config& config, const Plan& plan, const Progress& done) {
  const std::int64_t ranks = plan.mesh.world_size();
  const Site site{.world_size = ranks,
                  .ranks_per_host = ranks,
                  .cores_per_host = ranks,
                  .device = plan.device,
                  .cudnn = plan.cudnn.has_value(),
                  .done = done};
  // By way of all that a run's file goes through: what is left of the schedules, too.
  ReadResult read;
  read.config = config;
  read.complete = true;
  Plan found = prepare(read, site, Purpose::verify);
  require(!read.diagnostics.has_errors(), ExitCode::config,
          "the free run of this layout is not legal: " + render_text(read.diagnostics, false));
  return found;
}

}  // namespace trainctl
