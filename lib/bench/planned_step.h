// A step of a configuration on the ranks of a world, beside what the prices of its section cluster
// say that it takes.
#pragma once

#include <string>
#include <vector>

#include "bench/bench.h"
#include "comm/world.h"
#include "engine/ledger.h"
#include "plan/cost/ledger.h"

namespace trainctl {

struct PlannedStep {
  std::string where;            // "one rank on the CPU, 2 threads"
  double planned = 0;           // seconds
  double measured = 0;          // the median of request.pairs steps
  std::vector<Ledger> ledgers;  // planned, by stage
  MeasuredLedgers by_rank;
  double error() const { return planned / measured - 1; }
};

/// In the configuration's own layout, or on one rank if the world has one, on random tokens.
/// Collective; all ranks get the same. Throws Error{config} where the ranks cannot have the layout,
/// Error{usage} where section cluster has no prices.
PlannedStep measure_planned_step(World& world, const BenchRequest& request);

}  // namespace trainctl
