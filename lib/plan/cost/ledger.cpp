#include "plan/cost/ledger.h"

#include <algorithm>

#include "base/at.h"
#include "plan/cost/communication.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/estimate.h"
#include "plan/cost/overlap.h"
#include "plan/cost/step_time.h"

namespace trainctl {

namespace {

/// FLOPs of the products of `units` in all micro-batches of one rank.
double product_flops(const Plan& plan, const std::vector<UnitRange>& units) {
  const std::int64_t tokens = plan.micro_batch_size * plan.model.seq_length * plan.microbatches;
  double flops = 0;
  for (const UnitRange& range : units) {
    for (int unit = range.begin; unit < range.end; ++unit) {
      flops += rank_flops(plan, tokens, unit).matmul;
    }
  }
  return flops;
}

}  // namespace

double product_seconds(const Plan& plan, const StagePlan& stage, const Rates& rates) {
  double flops = product_flops(plan, stage.units);
  for (const Action& row : stage.actions) {
    if (row.kind != ActionKind::repeat) continue;
    for (int unit = row.begin; unit < row.end; ++unit) {
      BlockForm form = stage.forms.of(unit, row.chunk, row.microbatch);
      // The core of attention is a kernel of its own and does not count as a product.
      form.repeated = static_cast<std::uint8_t>(form.repeated & ~bit_of(BlockPart::attention));
      flops += repeat_flops(plan, unit, form);
    }
  }
  // The logits for a deferred weight gradient are recomputed: one of the head's three products.
  const int head = stage.deferral.unit;
  if (head >= 0) {
    flops += product_flops(plan, {{head, head + 1}}) / 3 *
             static_cast<double>(stage.deferral.microbatches) /
             static_cast<double>(plan.microbatches);
  }
  return flops / rates.matmul_flops;
}

double layer_wire_seconds(const Plan& plan, const StagePlan& stage, const Rates& rates) {
  double seconds = 0;
  for (const CollectiveUse& use : stage.communication) {
    if (waits_in_layers(use)) seconds += wire_seconds(use, rates);
  }
  double waits = 0;
  for (const int unit : blocks_of(stage.units, plan.model.layers)) {
    const PassSeconds ring = ring_wait(plan, unit, rates);
    const BlockPasses passes = passes_of(plan, stage, unit);
    waits += static_cast<double>(passes.of(BlockPart::attention)) * ring.forward +
             static_cast<double>(passes.once) * ring.input;
  }
  return seconds - hidden_seconds(plan, stage, rates) + waits;
}

namespace {

double idle(const Simulation& simulation, std::size_t rank) {
  const QueueTimes& times = at(simulation.queues, static_cast<std::int64_t>(rank));
  return simulation.seconds - times.busy - times.exposed();
}

}  // namespace

double Ledger::total() const {
  double seconds = 0;
  for (const LedgerEntry& entry : ledger_entries) seconds += this->*entry.seconds;
  return seconds;
}

std::vector<Ledger> estimate_ledgers(const Plan& plan, const Rates& rates) {
  return estimate_ledgers(plan, rate_prices(plan, rates));
}

std::vector<Ledger> estimate_ledgers(const Plan& plan, const StagePricesList& list) {
  SimulationInput input = simulation_input(plan);
  set_seconds(plan, list, input);
  const auto cost = input.cost;
  const Simulation all = simulate(input);
  input.cost = [&](const RankRows& rank, const Action& row) {
    return is_receive(row.kind) ? 0.0 : cost(rank, row);
  };
  const Simulation prompt = simulate(input);
  std::vector<Ledger> ledgers(plan.stages.size());
  for (std::size_t rank = input.ranks.size(); rank-- > 0;) {  // the first rank of a stage remains
    const int index = input.ranks[rank].input.stage;
    const StagePrices& prices = *at(list, index);
    Ledger& ledger = at(ledgers, index);
    const QueueTimes& times = all.queues[rank];
    ledger.products = prices.products();
    ledger.tp = prices.in_layers() - times.hidden_rows();
    ledger.kernels = std::max(0.0, times.busy + times.waited_rows - ledger.products - ledger.tp);
    ledger.dp = times.waited_sums;
    ledger.gather = times.waited_gathers;
    ledger.host = times.waited_copies;
    ledger.bubble = std::max(0.0, std::min(idle(prompt, rank), idle(all, rank)));
    ledger.p2p = std::max(0.0, idle(all, rank) - ledger.bubble);
    ledger.optimizer = prices.optimizer();
  }
  return ledgers;
}

std::vector<Ledger> estimate_ledgers(const Plan& plan, const ClusterConfig& cluster) {
  const auto machine = machine_of(cluster, plan.mesh.world_size());
  if (!machine) return {};
  return estimate_ledgers(plan, device_prices(plan, price_list(plan, *machine)));
}

}  // namespace trainctl
