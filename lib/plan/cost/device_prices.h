// The prices of a stage's rows on the device of section cluster (plan/prices/price_list.h), and the
// time of a step with these prices.
#pragma once

#include <memory>
#include <optional>

#include "config/schema/config.h"
#include "plan/cost/step_time.h"
#include "plan/plan.h"
#include "plan/prices/machine.h"
#include "plan/prices/price_list.h"

namespace trainctl {

// The meaning of a step's time for a run: failures and checkpoints, days, cost of tokens.

/// The share of time in which a run makes progress, if a checkpoint every `every` steps of `step`
/// seconds stalls it for `stall` seconds and devices fail every `between` seconds on average: 1 -
/// stall / (every step) - (every step / 2 + restart) / between, at least 0 (Daly, "A higher order
/// estimate of the optimum checkpoint interval", 2006, to first order). If `between` is 0, devices
/// never fail.
double goodput(double step, double every, double stall, double between, double restart);
/// The number of steps between checkpoints that maximises goodput(): sqrt(2 stall between) / step,
/// at least 1.
double best_interval(double step, double stall, double between);

/// The prices of `plan` on a machine that has figures for products in its dtype. `plan` must
/// outlive the prices; its communication and memory must be filled in.
PriceList price_list(const Plan& plan, const Machine& machine);

/// The prices of each stage.
StagePricesList device_prices(const Plan& plan, const PriceList& list);

/// A simulated step, with one rank for each stage, since the ranks of a stage take equal time.
struct PlayedStep {
  TimeEstimate time;
  SimulationInput input;  // with the costs of all rows
  Simulation played;      // with the times of all rows
};
/// Simulates a step with the machine's prices, the contention of collectives and the work that they
/// overlap, and costs that grow with the number of hosts. The rows of `plan` must be valid.
PlayedStep play_step(const Plan& plan, const Machine& machine, const StagePricesList& prices);

/// The time of a step by play_step(), and its meaning for a run of `steps` steps (unknown if 0).
TimeEstimate estimate_time(const Plan& plan, const Machine& machine,
                           const CheckpointConfig& checkpoint, const ClusterConfig& cluster,
                           std::int64_t steps);

/// The rates of section cluster, or effective_rates() of its device; nullopt if it has neither.
std::optional<Rates> rates_for(const Plan& plan, const ClusterConfig& cluster);

}  // namespace trainctl
