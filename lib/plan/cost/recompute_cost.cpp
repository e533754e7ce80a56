#include "plan/cost/recompute_cost.h"

#include <vector>

#include "base/at.h"
#include "plan/cost/communication.h"
#include "plan/cost/expert_overlap.h"
#include "plan/cost/real.h"
#include "plan/cost/tensor_overlap.h"

namespace trainctl {

namespace {

struct Part {
  BlockPart part;
  double flops = 0;
  double elements = 0;  // that it writes
};

/// One of a block's MLPs on a rank.
struct LocalMlp {
  double rows = 0;
  double width = 0;
};

/// A plain one, or the experts' and the shared ones.
std::vector<LocalMlp> mlps_of(const Plan& plan, int unit) {
  const LocalShape local = plan.local_of(unit);
  if (!plan.model.has_experts(unit - 1)) return {{real(local.mlp_rows), real(local.ffn)}};
  return {{expected_expert_rows(plan), real(local.expert_ffn)},
          {real(local.tokens), real(local.shared_ffn)}};
}

/// Seconds that the calls of these passes take.
BlockWire wire_of(const Plan& plan, const StagePlan& stage, int unit, const BlockPasses& passes,
                  const Rates& rates) {
  UseList list(plan, stage);
  add_block(list, unit, passes);
  BlockWire wire;
  for (const CollectiveUse& use : list.take()) {
    if (!waits_in_layers(use)) continue;
    (moves_rows(use) ? wire.rows : wire.waits) += wire_seconds(use, rates);
  }
  return wire;
}

}  // namespace

BlockWire block_wire(const Plan& plan, const StagePlan& stage, int unit, const Rates& rates) {
  const double all = real(plan.microbatches);
  const double partial = real(count_partial(stage, unit)) / all;
  BlockWire wire =
      wire_of(plan, stage, unit, passes_of(plan, stage, unit).without_repeats(), rates);
  wire = {wire.waits / all, wire.rows / all};
  for (const ActionKind kind :
       {ActionKind::forward, ActionKind::backward_input, ActionKind::backward_weight}) {
    const auto hidden = [&](bool keeps_more) {
      return hidden_over_tp(plan, kind, unit, stage.forms.of(unit, keeps_more), rates);
    };
    wire.waits -= partial * hidden(true) + (1 - partial) * hidden(false);
  }
  return wire;
}

RepeatCost repeat_cost(const Plan& plan, int unit, const BlockForm& form) {
  const ModelShape& model = plan.model;
  const LocalShape local = plan.local_of(unit);
  const double own = real(local.attention_rows);
  const double hidden = real(model.hidden);
  const double stream = real(local.stream_rows) * hidden;
  const double q = real(local.q);
  const double qkv = q + 2 * real(local.kv);
  const double pairs = real(model.seq_length + 1) / 2;  // keys that a query sees
  double inner = 0;                                     // elements inside the block's MLPs
  for (const LocalMlp& mlp : mlps_of(plan, unit)) inner += mlp.rows * mlp.width;
  const double wide = (model.gated_mlp ? 2 : 1) * inner;
  // Experts have a copy of a token for each choice.
  const double copies = model.has_experts(unit - 1) ? expected_expert_rows(plan) * hidden : 0;
  const Part parts[] = {
      {BlockPart::norm1, 0, stream},
      {BlockPart::qkv, 2 * own * hidden * qkv, own * qkv},
      {BlockPart::attention, 4 * own * q * pairs, own * q},
      {BlockPart::projection, 2 * own * hidden * q, stream},
      {BlockPart::norm2, 0, stream},
      {BlockPart::mlp, 2 * hidden * wide, copies + wide},
      {BlockPart::activation, 0, inner},
  };
  RepeatCost cost;
  for (const Part& row : parts) {
    if (!form.repeats(row.part)) continue;
    cost.flops += row.flops;
    cost.bytes += 2 * row.elements * real(size_of(plan.compute));
  }
  return cost;
}

double repeat_seconds(const RepeatCost& cost, const Rates& rates) {
  return cost.flops / rates.matmul_flops + cost.bytes / rates.memory_bandwidth;
}

RepeatPrice price_repeat(const Plan& plan, int stage, int unit, const BlockForm& form,
                         const Rates& rates) {
  BlockPasses passes;
  passes.add_repeats(form, 1);
  const BlockWire wire = wire_of(plan, at(plan.stages, stage), unit, passes, rates);
  RepeatPrice price;
  price.waits = wire.waits - hidden_over_tp(plan, ActionKind::repeat, unit, form, rates);
  price.rows = wire.rows;
  price.work = repeat_seconds(repeat_cost(plan, unit, form), rates);
  if (form.repeats(BlockPart::attention)) price.waits += ring_wait(plan, unit, rates).forward;
  if (plan.model.has_experts(unit - 1)) {
    price.hidden = hidden_exchange(plan, ActionKind::repeat, form, rates);
  }
  return price;
}

}  // namespace trainctl
