// What a time of a step means for a run: failures and checkpoints, days, and what tokens cost.
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

/// Of a step of `seconds`.
DeviceTime run_estimate(const Plan& plan, const Machine& machine, const Config& config,
                        double seconds);

}  // namespace trainctl
