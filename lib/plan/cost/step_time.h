// The time of a step, from the tables of a plan and the rates of a rank. Matrix products cost their
// operations, everything else the bytes that it moves, communication latency and bandwidth; the
// rows of all ranks are played with these costs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "config/schema/config.h"
#include "plan/costs.h"
#include "plan/plan.h"
#include "plan/schedule/simulate.h"
#include "plan/tables/recompute_form.h"

namespace trainctl {

struct Rates {                  // of one rank while all ranks are busy
  double matmul_flops = 0;      // FLOP/s of products in the compute type
  double memory_bandwidth = 0;  // bytes/s read and written
  double latency = 0;           // seconds of a message
  double bandwidth = 0;         // bytes/s of a rank's messages
};

/// The rates, or nothing unless all are given.
std::optional<Rates> given_rates(const ClusterConfig& cluster);

/// Seconds that the calls take one rank: latency for each round of a ring (one for a message), and
/// bandwidth for its bytes, with the bus factors of nccl-tests (doc/PERFORMANCE.md). Small gathers
/// of many ranks take fewer rounds (base/collectives.h).
double wire_seconds(const CollectiveUse& use, const Rates& rates);

/// Whether calls are collectives inside layers, which wait for them to end.
bool waits_in_layers(const CollectiveUse& use);

/// Seconds of F, B and W.
struct PassSeconds {
  double forward = 0, input = 0, weight = 0;
  double total() const { return forward + input + weight; }
};

/// The passes through one unit with one micro-batch, `layer` of blocks that cost alike.
struct UnitTimes {
  PassSeconds embedding, layer, head;
  // For a block with experts: one of the four times that rows are on their way in F and B, and the
  // products of experts in either.
  double exchanged = 0, experts = 0;
  double deferred = 0;  // what F of the head leaves to W, if that is deferred,
  double repeated = 0;  // and what W does once more for it
  const PassSeconds& of_unit(int unit, std::int64_t layers) const {
    return unit == 0 ? embedding : unit > layers ? head : layer;
  }
  /// Seconds of an F, B or W row.
  double of(const Action& row, std::int64_t layers) const;
};

/// Seconds of an R row of one block and micro-batch (plan/cost/step_time.h).
struct RepeatPrice {
  double work = 0;    // of its products and bytes
  double waits = 0;   // for collectives, and for keys that go around a ring
  double rows = 0;    // of what it sends to experts of other ranks
  double hidden = 0;  // of `rows`, during products of the same row where it runs as a whole
  double whole() const { return work + waits + rows - hidden; }
};
/// The prices of the rows of one stage: with the rates of a rank (rate_prices), or with those of a
/// device (plan/cost/device_prices.h). Seconds, of one rank.
class StagePrices {
 public:
  virtual ~StagePrices() = default;
  /// The times of the stage's units, with those of blocks like `block`; 0 if the stage has no
  /// block.
  virtual UnitTimes units(int block) const = 0;
  /// R of a block with one micro-batch.
  virtual RepeatPrice repeat(int unit, const BlockForm& form) const = 0;
  /// All calls of the use.
  virtual double wire(const CollectiveUse& use) const = 0;
  /// The copy of this number of bytes between the device and its host.
  virtual double copy(double bytes) const = 0;
  /// As the functions of these names in plan/cost/overlap.h.
  virtual double hidden(int unit, ActionKind kind, const BlockForm& form) const = 0;
  virtual double expert_work(int unit, bool all) const = 0;
  // The sums over a step.
  virtual double products() const = 0;
  virtual double in_layers() const = 0;    // collectives of layers that are waited for
  virtual double beside_work() const = 0;  // and those that overlap with products
  virtual double optimizer() const = 0;    // the update, with the collectives over all ranks
};
using StagePricesList = std::vector<std::unique_ptr<const StagePrices>>;

/// One for each stage. `plan` must outlive them.
StagePricesList rate_prices(const Plan& plan, const Rates& rates);

/// Whether blocks cost alike: their operators are split alike, and so are their tokens, and both
/// have experts or none.
bool cost_alike(const Plan& plan, int block, int other);

/// Sets SimulationInput::cost, seconds of a row: a pass, a message (of its receive), a sum, a
/// gather or a host copy, which reads and writes its bytes; and SimulationInput::sent. `plan` must
/// outlive them.
void set_seconds(const Plan& plan, const StagePricesList& prices, SimulationInput& input);
void set_seconds(const Plan& plan, const Rates& rates, SimulationInput& input);
/// The first of them.
std::function<double(const RankRows&, const Action&)> row_seconds(const Plan& plan,
                                                                  const Rates& rates);

/// The matrix products of a rank of `stage` in a step, and the collectives of its layers that it
/// waits for (ledger.cpp).
double product_seconds(const Plan& plan, const StagePlan& stage, const Rates& rates);
double layer_wire_seconds(const Plan& plan, const StagePlan& stage, const Rates& rates);

/// The update of a rank of `stage`, with the collectives over all ranks.
double optimizer_seconds(const StagePlan& stage, const Rates& rates);

/// The time of a step of a `plan` with complete tables. A kept tensor is written and read once in F
/// and read in B, where its gradient is written and read; weight gradients are accumulated. R costs
/// the products, bytes and collectives of the parts that it recomputes
/// (plan/cost/step_time.h). Attention counts as its products under the causal mask. Other
/// collectives inside a layer: half in its F, half in its B. A ring of keys, and collectives that
/// overlap with products, cost only the time for which they are waited for. The head computes its
/// gradients in F and touches its logits four times. The update reads and writes once everything
/// that a rank keeps for parameters, gradients and optimizer.
TimeEstimate estimate_time(const Plan& plan, const Rates& rates);
/// The time of a step by other prices, of ranks that get their costs here (simulation_input);
/// `simulation`, if given, becomes the simulation that was played.
TimeEstimate estimate_time(const Plan& plan, const StagePricesList& prices, SimulationInput& ranks,
                           Simulation* simulation = nullptr);

/// The work of one rank for the R row of the block `unit` with one micro-batch: operations of
/// products, with attention under the causal mask and without a router's.
double repeat_flops(const Plan& plan, int unit, const BlockForm& form);
/// Seconds of that row, without its collectives: of these operations, and of what it writes and
/// reads once.
double repeat_seconds(const Plan& plan, int unit, const BlockForm& form, const Rates& rates);
/// The price of the row on a rank of stage number `stage`.
RepeatPrice price_repeat(const Plan& plan, int stage, int unit, const BlockForm& form,
                         const Rates& rates);

}  // namespace trainctl
