// The prices of a stage's rows on the device of section cluster (plan/prices/price_list.h), and the
// time of a step by them.
#pragma once

#include <memory>
#include <optional>

#include "config/schema/config.h"
#include "plan/cost/step_time.h"
#include "plan/plan.h"
#include "plan/prices/machine.h"
#include "plan/prices/price_list.h"

namespace trainctl {

// The meaning of a step's time for a run: failures and checkpoints, days, and the cost of tokens.

/// The share of the time in which a run goes forward, where a checkpoint of every `every` steps of
/// `step` seconds stalls it for `stall`, and devices fail after `between` seconds in the mean:
/// 1 - stall / (every step) - (every step / 2 + restart) / between (Daly, "A higher order estimate
/// of the optimum checkpoint interval", 2006, to first order); not below 0. `between` 0: never.
double goodput(double step, double every, double stall, double between, double restart);
/// The steps between checkpoints at which that is largest: sqrt(2 stall between) / step, at least
/// 1.
double best_interval(double step, double stall, double between);

/// The prices of `plan` on a machine that has products of its type. `plan` must outlive what takes
/// them; its communication and memory must be filled in.
PriceList price_list(const Plan& plan, const Machine& machine);

/// One for each stage.
StagePricesList device_prices(const Plan& plan, const PriceList& list);

/// A step as it was played, one rank for each stage: the others do the same in the same time.
struct PlayedStep {
  TimeEstimate time;
  SimulationInput input;  // with the costs of its rows
  Simulation played;      // with the times of its rows
};
/// Plays a step by the machine's prices, with the contention of collectives with the work that they
/// overlap, and the costs that grow with the number of hosts. The rows of `plan` are legal.
PlayedStep play_step(const Plan& plan, const Machine& machine, const StagePricesList& prices);

/// The time of such a step, and what it means for a run of `steps` steps (0: unknown).
TimeEstimate estimate_time(const Plan& plan, const Machine& machine,
                           const CheckpointConfig& checkpoint, const ClusterConfig& cluster,
                           std::int64_t steps);

/// The rates of section cluster, or those that stand for its device; nothing where it has neither.
std::optional<Rates> rates_for(const Plan& plan, const ClusterConfig& cluster);

}  // namespace trainctl
