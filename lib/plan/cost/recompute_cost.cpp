#include "plan/cost/recompute_cost.h"

#include "base/at.h"
#include "plan/cost/communication.h"
#include "plan/cost/expert_overlap.h"
#include "plan/cost/real.h"
#include "plan/cost/tensor_overlap.h"
#include "plan/model/block.h"

namespace trainctl {

namespace {

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
  RepeatCost cost;
  for (const Product& one : block_products(plan.form_of(unit), plan.local_of(unit))) {
    if (!one.part || !form.repeats(*one.part)) continue;
    cost.flops += one.flops();
    cost.bytes += 2 * one.elements() * real(size_of(plan.compute));
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
  if (plan.model.kind(unit - 1).experts) {
    price.hidden = hidden_exchange(plan, unit, ActionKind::repeat, form, rates);
  }
  return price;
}

}  // namespace trainctl
