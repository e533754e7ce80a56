// The prices of a stage's rows on the device of section cluster (plan/prices/price_list.h), and the
// time of a step by them.
#pragma once

#include <memory>
#include <optional>

#include "config/schema/config.h"
#include "plan/cost/run_estimate.h"
#include "plan/cost/step_time.h"
#include "plan/plan.h"
#include "plan/prices/price_list.h"

namespace trainctl {

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

/// The time of such a step, and what it means for a run.
TimeEstimate estimate_time(const Plan& plan, const Machine& machine, const RunTerms& terms);

/// Rates that stand for the machine's prices where one number for each must do: products of a
/// block's forward pass, and the network of its tensor-parallel ranks.
Rates effective_rates(const Plan& plan, const Machine& machine);

/// The rates of section cluster, or those that stand for its device; nothing where it has neither.
std::optional<Rates> rates_for(const Plan& plan, const ClusterConfig& cluster);

}  // namespace trainctl
