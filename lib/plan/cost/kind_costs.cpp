#include "plan/cost/kind_costs.h"

#include "base/at.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"

namespace trainctl {

namespace {

void add_costs(const Plan& plan, int unit, KindCost& cost) {
  cost.flops = estimate_flops(plan.model, plan.tokens_per_step(), {{unit, unit + 1}}).total();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& rows = at(plan.stages, stage);
    if (!holds(rows.units, unit)) continue;
    cost.kept = form_bytes(plan, stage, unit, rows.forms.of(unit, false)).kept;
    for (const ParamSpec& row : rows.parameters) {
      if (row.unit == unit) cost.parameters += row.global_shape.numel();
    }
  }
}

}  // namespace

std::vector<KindCost> kind_costs(const Plan& plan) {
  std::vector<KindCost> costs;
  for (const LayerKind& kind : plan.model.kinds) costs.push_back({.kind = kind});
  for (std::int64_t layer = 0; layer < plan.model.layers; ++layer) {
    at(costs, plan.model.kind_number(layer)).layers.push_back(layer);
  }
  for (KindCost& cost : costs) {
    if (!cost.layers.empty()) add_costs(plan, static_cast<int>(cost.layers.front()) + 1, cost);
  }
  return costs;
}

}  // namespace trainctl
