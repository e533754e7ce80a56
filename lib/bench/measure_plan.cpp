#include <ostream>

#include "base/error.h"
#include "base/units.h"
#include "bench/bench_setup.h"
#include "engine/ledger.h"
#include "plan/cost/device_prices.h"
#include "run/records/ledger_text.h"

namespace trainctl {

namespace {

/// The ledger of the one rank by the prices of section cluster.
Ledger planned_ledger(const BenchSetup& setup) {
  const Plan& plan = setup.plan;
  if (const auto machine = machine_of(setup.config.cluster, 1)) {
    return estimate_ledgers(plan, device_prices(plan, price_list(plan, *machine))).front();
  }
  const auto rates = given_rates(setup.config.cluster);
  require(rates.has_value(), ExitCode::usage,
          "--measure compares the prices of section cluster, which the file does not have: set "
          "cluster.device, or all four rates");
  return estimate_ledgers(plan, *rates).front();
}

}  // namespace

void measure_plan(const BenchRequest& request, std::ostream& out) {
  const BenchSetup setup = read_bench_setup(request);
  const Ledger planned = planned_ledger(setup);
  const std::string where = open_bench_device(setup.plan);
  const std::unique_ptr<World> world = self_world();
  Trace trace(setup.plan.stage_of(0).actions, request.pairs);
  const std::unique_ptr<Engine> engine = bench_engine(setup, *world, &trace);
  const std::vector<Batch> batches = random_batches(setup.plan);
  take_first_step(*engine, setup, *world, batches);
  for (int step = 0; step < request.pairs; ++step) engine->train_step(batches);
  const std::unique_ptr<Group> everyone = world->everyone("measured");
  const MeasuredLedgers measured = measure_ledgers({trace, setup.plan, *world, *everyone});
  out << "one rank on " << where << ", the median of " << measured.of_steps << " steps\n";
  for (const std::string& line : ledger_table({planned}, measured, measured.step)) {
    out << line << '\n';
  }
  out << "planned beside measured: " << differences_text(planned, measured.by_rank.front()) << '\n';
}

}  // namespace trainctl
