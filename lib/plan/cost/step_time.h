// The time of a step, from a plan's tables and the rates of a rank. The cost of matrix products
// follows from their operations, of other work from the bytes moved, of communication from latency
// and bandwidth. The rows of all ranks are simulated with these costs.
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

struct Rates {                  // rates of one rank while all ranks work
  double matmul_flops = 0;      // FLOP/s of products in the compute type
  double memory_bandwidth = 0;  // bytes/s, read and written
  double latency = 0;           // seconds per message
  double bandwidth = 0;         // bytes/s sent by a rank
};

/// The rates of section cluster; nullopt unless all are given.
std::optional<Rates> given_rates(const ClusterConfig& cluster);

/// Seconds of the calls on one rank: latency for each round of a ring (one for a message), plus
/// bytes / bandwidth with the bus factors of nccl-tests (doc/PERFORMANCE.md). Small all-gathers of
/// many ranks take fewer rounds (base/collectives.h).
double wire_seconds(const CollectiveUse& use, const Rates& rates);

/// Whether the calls are collectives inside layers, whose end the layers wait for.
bool waits_in_layers(const CollectiveUse& use);

/// Seconds of F, B and W.
struct PassSeconds {
  double forward = 0, input = 0, weight = 0;
  double total() const { return forward + input + weight; }
};

/// Seconds of the passes of one micro-batch through one unit of the model; `layer`: a block.
struct UnitTimes {
  PassSeconds embedding, layer, head;
  // For a block with experts: one of the four transfers of rows in F and B, and the experts'
  // products in either F or B.
  double exchanged = 0, experts = 0;
  double deferred = 0;  // work that F of a head with deferral leaves to W
  double repeated = 0;  // work that W repeats for a deferred gradient
  const PassSeconds& of_unit(int unit, std::int64_t layers) const {
    return unit == 0 ? embedding : unit > layers ? head : layer;
  }
  /// Seconds of the row, which is an F, B or W.
  double of(const Action& row, std::int64_t layers) const;
};

/// Seconds of an R row of one block and micro-batch.
struct RepeatPrice {
  double work = 0;    // seconds of products and memory traffic
  double waits = 0;   // seconds of waiting for collectives, and for keys passed around a ring
  double rows = 0;    // seconds of sending rows to experts of other ranks
  double hidden = 0;  // part of `rows` that overlaps with products of the row, if run as a whole
  double whole() const { return work + waits + rows - hidden; }
};
/// The prices of a stage's rows, in seconds of one rank: from the rates of a rank (rate_prices), or
/// from those of a device (plan/cost/device_prices.h).
class StagePrices {
 public:
  virtual ~StagePrices() = default;
  /// The times of the stage's units. `layer` is for blocks that cost the same as `block`; 0 if the
  /// stage has no blocks.
  virtual UnitTimes units(int block) const = 0;
  /// The price of recomputing parts of block `unit` for one micro-batch (row R).
  virtual RepeatPrice repeat(int unit, const BlockForm& form) const = 0;
  /// Seconds of all calls of `use`.
  virtual double wire(const CollectiveUse& use) const = 0;
  /// Seconds of a copy of `bytes` between the device and its host.
  virtual double copy(double bytes) const = 0;
  /// Like hidden_exchange() and expert_products() in plan/cost/overlap.h.
  virtual double hidden(int unit, ActionKind kind, const BlockForm& form) const = 0;
  virtual double expert_work(int unit, bool all) const = 0;
  // Sums over a step:
  virtual double products() const = 0;
  virtual double in_layers() const = 0;    // waiting for collectives in layers
  virtual double beside_work() const = 0;  // collectives in layers that overlap with products
  virtual double optimizer() const = 0;    // the update, with the collectives over all ranks
};
using StagePricesList = std::vector<std::unique_ptr<const StagePrices>>;

/// The prices of each stage from rates. `plan` must outlive them.
StagePricesList rate_prices(const Plan& plan, const Rates& rates);

/// Whether two blocks cost the same: equal kinds of layers (all with or all without experts), equal
/// splits of operators and of tokens.
bool cost_alike(const Plan& plan, int block, int other);

/// Sets SimulationInput::cost, the seconds of a row: a pass, a message (counted at its receive), a
/// gradient sum, a gather or a host copy, which reads and writes its bytes. Also sets
/// SimulationInput::sent. `plan` must outlive both.
void set_seconds(const Plan& plan, const StagePricesList& prices, SimulationInput& input);
/// The function that set_seconds() stores in SimulationInput::cost, with prices from rates.
std::function<double(const RankRows&, const Action&)> row_seconds(const Plan& plan,
                                                                  const Rates& rates);

/// Seconds of a step on a rank of `stage`: its matrix products, and waiting for collectives in
/// layers (ledger.cpp).
double product_seconds(const Plan& plan, const StagePlan& stage, const Rates& rates);
double layer_wire_seconds(const Plan& plan, const StagePlan& stage, const Rates& rates);

/// Seconds of the update on a rank of `stage`, with the collectives over all ranks.
double optimizer_seconds(const StagePlan& stage, const Rates& rates);

/// The time of a step of a `plan` with complete tables. A kept tensor is written and read once in F
/// and read in B, where its gradient is written and read; weight gradients are accumulated. R costs
/// the products, bytes and collectives of the parts that it recomputes. Attention counts as its
/// products under the causal mask. Other collectives inside a layer count half in F and half in B.
/// A ring of keys, and collectives that overlap with products, cost only the time of waiting for
/// them. The head computes its gradients in F and reads or writes its logits four times. The update
/// reads and writes all parameters, gradients and optimizer states of a rank once.
TimeEstimate estimate_time(const Plan& plan, const Rates& rates);
/// The time of a step with other prices. Sets the costs in `ranks`, which is a simulation_input();
/// stores the simulation in `simulation` if that is given.
TimeEstimate estimate_time(const Plan& plan, const StagePricesList& prices, SimulationInput& ranks,
                           Simulation* simulation = nullptr);

/// The operations of one rank in the R row of the block `unit` with one micro-batch: its products,
/// with attention under the causal mask and without a router's.
double repeat_flops(const Plan& plan, int unit, const BlockForm& form);
/// Seconds of the R row without its collectives: its operations, and its tensors written and read
/// once.
double repeat_seconds(const Plan& plan, int unit, const BlockForm& form, const Rates& rates);
/// The price of the R row of block `unit` on a rank of stage number `stage`.
RepeatPrice price_repeat(const Plan& plan, int stage, int unit, const BlockForm& form,
                         const Rates& rates);

}  // namespace trainctl
