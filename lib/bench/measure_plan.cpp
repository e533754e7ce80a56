#include <ostream>

#include "base/units.h"
#include "bench/planned_step.h"
#include "run/records/step_records.h"

namespace trainctl {

void measure_plan(const BenchRequest& request, int ranks, std::ostream& out) {
  const auto on_rank = [&](World& world) {
    const PlannedStep step = measure_planned_step(world, request);
    if (world.rank() > 0) return;
    const MeasuredLedgers& measured = step.by_rank;
    out << step.where << ", the median of " << measured.of_steps << " steps\n";
    for (const std::string& line : ledger_table(step.ledgers, measured, measured.step)) {
      out << line << '\n';
    }
    out << "planned beside measured: "
        << differences_text(mean_of(step.ledgers), mean_of(measured.by_rank)) << '\n'
        << "the step: planned " << format_seconds(step.planned) << ", measured "
        << format_seconds(step.measured) << ": " << printed("%+.1f", 100 * step.error()) << " %\n";
  };
  if (ranks > 1) {
    run_thread_world(ranks, {}, on_rank);
  } else {
    on_rank(*self_world());
  }
}

}  // namespace trainctl
