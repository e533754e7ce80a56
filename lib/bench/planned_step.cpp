#include "bench/planned_step.h"

#include "base/error.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "config/read/read.h"
#include "plan/cost/device_prices.h"
#include "plan/rules/resolve.h"
#include "run/agreement.h"
#include "run/preflight/machine.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

BenchSetup setup_on(const World& world, const BenchRequest& request) {
  if (world.size() == 1) return read_bench_setup(request);
  ReadResult read = read_config(request.config, request.set_options);
  read.config.train.rampup_batch_size.reset();  // the full batch is timed
  BenchSetup setup;
  setup.plan = prepare(read,
                       {.world_size = world.size(),
                        .ranks_per_host = world.local_size(),
                        .cores_per_host = usable_cores(),
                        .ranks_are_threads = world.in_one_process(),
                        .device = device_here(read.config.parallel, world.local_size()).device},
                       Purpose::bench);
  require(!read.diagnostics.has_errors(), ExitCode::config, render_text(read.diagnostics, false));
  setup.config = read.config;
  return setup;
}

std::vector<Ledger> ledgers_of(const BenchSetup& setup) {
  const Plan& plan = setup.plan;
  if (const auto machine = machine_of(setup.config.cluster, plan.mesh.world_size())) {
    return estimate_ledgers(plan, device_prices(plan, price_list(plan, *machine)));
  }
  const auto rates = given_rates(setup.config.cluster);
  require(rates.has_value() && plan.time.has_value(), ExitCode::usage,
          "--measure compares the prices of section cluster, which the file does not have: set "
          "cluster.device, or all four rates");
  return estimate_ledgers(plan, *rates);
}

}  // namespace

PlannedStep measure_planned_step(World& world, const BenchRequest& request) {
  const BenchSetup setup = setup_on(world, request);
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
