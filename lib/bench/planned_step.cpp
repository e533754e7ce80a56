#include "bench/planned_step.h"

#include "base/error.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "plan/cost/step_time.h"

namespace trainctl {

namespace {

std::vector<Ledger> ledgers_of(const BenchSetup& setup) {
  const Plan& plan = setup.plan;
  if (setup.config.cluster.device) return estimate_ledgers(plan, setup.config.cluster);
  const auto rates = given_rates(setup.config.cluster);
  require(rates.has_value() && plan.time.has_value(), ExitCode::usage,
          "--measure compares the prices of section cluster, which the file does not have: set "
          "cluster.device, or all four rates");
  return estimate_ledgers(plan, *rates);
}

}  // namespace

PlannedStep measure_planned_step(World& world, const BenchRequest& request) {
  const BenchSetup setup =
      world.size() == 1 ? read_bench_setup(request) : read_world_setup(request, world);
  const Plan& plan = setup.plan;
  PlannedStep found;
  found.ledgers = ledgers_of(setup);
  found.planned = plan.time->step();
  found.where = world.size() == 1 ? "one rank on " + open_bench_device(plan)
                                  : std::to_string(world.size()) + " ranks of " +
                                        std::to_string(plan.threads_per_rank) + " threads";
  const std::unique_ptr<Group> everyone = world.everyone("measured");
  Trace trace(plan.stage_of(world.rank()).actions, request.pairs);
  const std::unique_ptr<Engine> engine = bench_engine(setup, world, &trace);
  const std::vector<Batch> batches = random_batches(plan);
  take_first_step(*engine, setup, world, batches);
  std::vector<double> seconds;
  for (int step = 0; step < request.pairs; ++step) {
    gather_values(*everyone, 0.0);
    seconds.push_back(engine->train_step(batches).step_seconds);
  }
  found.by_rank = measure_ledgers({trace, plan, world, *everyone});
  found.measured = gather_values(*everyone, median(seconds)).front();
  return found;
}

}  // namespace trainctl
