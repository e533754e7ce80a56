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

// The cost of the passes through one block and the head on a device: sums of a price list over the
// declared products of plan/model. Seconds of one rank and one micro-batch, without the overhead of
// the software.

struct PassPrice {
  double forward = 0, input = 0, weight = 0;  // F, B and W
};

struct BlockPrice {
  PassPrice products;
  PassPrice attention;         // no weights
  PassPrice elements;          // operations that work element by element; no weights
  double flops = 0;            // of products.forward
  double attention_flops = 0;  // of attention.forward, under the mask
};
BlockPrice block_price(const PriceList& list, const Plan& plan, int unit);

/// The work of the parts that an R row recomputes: matrix products, and attention with the values
/// computed element by element.
struct RepeatedWork {
  double products = 0, rest = 0;
  double all() const { return products + rest; }
};
RepeatedWork repeated_work(const PriceList& list, const Plan& plan, int unit,
                           const BlockForm& form);

/// The products of experts in F or in B; `all`, or those before the activation.
double expert_seconds(const PriceList& list, const Plan& plan, int unit, bool all);

/// The head's products, and the same with what is read and written of the logits, in F.
PassPrice head_products(const PriceList& list, const Plan& plan);
PassPrice head_price(const PriceList& list, const Plan& plan);

// The meaning of a step's time for a run: failures and checkpoints, days, and the cost of tokens.

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
