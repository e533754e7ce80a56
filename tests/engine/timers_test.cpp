// The sums of a step's timers, and the meeting of ranks before its phases.
#include "engine/trace.h"

#include <memory>

#include "catch.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

double value(const TimerSeconds& seconds, Timer timer) {
  return seconds[static_cast<std::size_t>(timer)];
}

struct TimedRun {
  std::vector<std::unique_ptr<Trace>> traces;  // by rank
  std::vector<TimerSeconds> seconds;           // of the last step
  std::vector<double> gap;                     // before the rows that complete gradients
  std::vector<ActionKind> completing;          // the first of these rows
  std::vector<TimerRange> ranges;              // over the steps, as rank 0 has them
  std::int64_t steps_left = -1;                // in the sums, after they were taken
};

TimedRun timed_run(const std::vector<std::string>& options, int ranks, int level) {
  TimedRun run;
  run.traces.resize(static_cast<std::size_t>(ranks));
  run.seconds.resize(run.traces.size());
  run.gap.resize(run.traces.size());
  run.completing.resize(run.traces.size());
  SampleRun sample{.set_options = options, .ranks = ranks, .steps = 3, .world = {}};
  sample.make_trace = [&](const World& world, const Plan& plan) {
    auto& trace = run.traces[static_cast<std::size_t>(world.rank())];
    trace = std::make_unique<Trace>(plan.stage_of(world.rank()).actions, 3);
    return trace.get();
  };
  sample.inspect = [&](Engine&, const Plan& plan, World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const Trace& trace = *run.traces[rank];
    run.seconds[rank] = timers_of(trace, 3);
    const std::size_t end = end_of_passes(plan.stage_of(world.rank()).actions);
    const auto records = trace.step(3);
    run.gap[rank] = records[end].start - records[end - 1].finish;
    run.completing[rank] = trace.rows()[end].kind;
    TimerSums sums(level);
    for (int step = 0; step < 3; ++step) sums.add(trace);
    const auto everyone = world.everyone("timers");
    const auto ranges = sums.take(*everyone);
    if (rank > 0) return;
    run.ranges = ranges;
    run.steps_left = sums.steps();
  };
  train_sample(sample);
  return run;
}

}  // namespace

TEST_CASE("timers are sums over the rows of a step", "[threads]") {
  const TimedRun run = timed_run({"parallel.pipeline_stages=2", "train.micro_batch_size=1"}, 4, 2);
  for (std::size_t rank = 0; rank < run.seconds.size(); ++rank) {
    const TimerSeconds& seconds = run.seconds[rank];
    CHECK(value(seconds, Timer::interval) >=
          value(seconds, Timer::forward_backward) + value(seconds, Timer::optimizer));
    double parts = 0;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      const auto timer = static_cast<Timer>(i);
      CHECK(seconds[i] >= 0);
      if (timer == Timer::interval || timer == Timer::forward_backward) continue;
      if (timer != Timer::optimizer) parts += seconds[i];
    }
    CHECK(parts <= value(seconds, Timer::forward_backward) * (1 + 1e-9));
    CHECK(value(seconds, Timer::forward_compute) > 0);
    CHECK(value(seconds, Timer::backward_compute) > 0);
    CHECK(value(seconds, Timer::optimizer) > 0);
    CHECK(run.completing[rank] != ActionKind::backward_weight);
    CHECK(run.gap[rank] == 0);
  }
  CHECK(run.steps_left == 0);
  REQUIRE(run.ranges.size() > 6);
  CHECK(run.ranges.front().name == "interval-time");
  for (const TimerRange& range : run.ranges) CHECK(range.least <= range.most);
}

TEST_CASE("a level leaves out the timers above it", "[threads]") {
  for (const int level : {0, 1}) {
    const TimedRun run = timed_run({}, 2, level);
    for (const TimerRange& range : run.ranges) {
      for (std::size_t i = 0; i < timer_names.size(); ++i) {
        if (timer_names[i] == range.name) CHECK(level_of(static_cast<Timer>(i)) <= level);
      }
    }
    CHECK(run.ranges.size() == (level == 0 ? 1U : 4U));
  }
}

TEST_CASE("with timers all ranks meet before gradients are completed", "[threads]") {
  const TimedRun run = timed_run({"hooks.timers=true"}, 2, 1);
  CHECK(run.gap[0] > 0);
  CHECK(run.gap[1] > 0);
  CHECK(timed_run({"hooks.timers=true", "log.barrier_with_timers=false"}, 2, 1).gap[0] == 0);
  CHECK(timed_run({"hooks.timers=true", "log.timer_level=0"}, 2, 1).gap[0] == 0);
}
