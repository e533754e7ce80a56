// The meaning of a step's time for a run: failures and checkpoints, days, and the cost of tokens.
#pragma once

#include "plan/plan.h"
#include "plan/prices/machine.h"

namespace trainctl {

/// The share of the time in which a run goes forward, where a checkpoint of every `every` steps of
/// `step` seconds stalls it for `stall`, and devices fail after `between` seconds in the mean:
/// 1 - stall / (every step) - (every step / 2 + restart) / between (Daly, "A higher order estimate
/// of the optimum checkpoint interval", 2006, to first order); not below 0. `between` 0: never.
double goodput(double step, double every, double stall, double between, double restart);
/// The steps between checkpoints at which that is largest: sqrt(2 stall between) / step, at least
/// 1.
double best_interval(double step, double stall, double between);

/// The terms of a run on which its estimate depends.
struct RunTerms {
  CheckpointConfig checkpoint{};
  std::int64_t steps = 0;                  // 0: unknown
  std::optional<double> price_per_hour{};  // of one device
};
RunTerms run_terms(const Config& config);

/// The estimate for a step of `seconds`.
DeviceTime run_estimate(const Plan& plan, const Machine& machine, const RunTerms& terms,
                        double seconds);

}  // namespace trainctl
