#include <algorithm>
#include <optional>

#include "base/at.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/forms.h"
#include "plan/cost/recompute_cost.h"

namespace trainctl {

namespace {

constexpr const char* usual_forms[] = {"none",
                                       "norms",
                                       "activations",
                                       "norms+activations",
                                       "attention",
                                       "norms+attention+activations",
                                       "norms+mlp+activations",
                                       "full"};

/// Blocks of a stage that have experts, or those that have none.
struct BlockKind {
  bool experts = false;
  std::vector<int> units;
  std::vector<std::uint8_t> in_use;  // the parts that some of them recompute, ascending
};

std::vector<std::uint8_t> parts_in_use(const StagePlan& rows, const std::vector<int>& units) {
  std::vector<std::uint8_t> parts;
  for (const int unit : units) {
    parts.push_back(rows.forms.of(unit, false).again);
    if (!rows.forms.is_partial.empty()) parts.push_back(rows.forms.of(unit, true).again);
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return parts;
}

/// Dense blocks first.
std::vector<BlockKind> kinds_of(const Plan& plan, const StagePlan& rows) {
  std::vector<BlockKind> kinds;
  for (const bool experts : {false, true}) {
    BlockKind kind{.experts = experts,
                   .units = first_blocks(rows.units, plan.model.layers, plan.model.layers),
                   .in_use = {}};
    std::erase_if(kind.units,
                  [&](int unit) { return plan.model.kind(unit - 1).experts != experts; });
    if (kind.units.empty()) continue;
    kind.in_use = parts_in_use(rows, kind.units);
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

/// `laid`: all blocks of the stage in this form. Of the kind, the first block stands for all.
RecomputeCost cost_of(const Plan& plan, int stage, const BlockKind& kind, const BlockForm& form,
                      const StagePlan& laid, const std::optional<Rates>& rates) {
  const int unit = kind.units.front();
  const FormBytes bytes = form_bytes(plan, stage, unit, form);
  RecomputeCost cost;
  cost.experts = kind.experts;
  cost.layers = std::ssize(kind.units);
  cost.form = form_text(form.again);
  cost.in_use = std::binary_search(kind.in_use.begin(), kind.in_use.end(), form.again);
  cost.kept = bytes.kept;
  cost.once = bytes.once;
  cost.rank = laid.activation_slots.bytes;
  cost.on_host = laid.activation_slots.host_bytes;
  cost.flops = repeat_cost(plan, unit, form).flops;
  if (rates) cost.seconds = price_repeat(plan, stage, unit, form, *rates).whole();
  return cost;
}

}  // namespace

std::vector<RecomputeCost> compare_forms(const Plan& plan, int stage, const MoveConfig& config,
                                         const ClusterConfig& cluster) {
  const StagePlan& rows = at(plan.stages, stage);
  const std::vector<BlockKind> kinds = kinds_of(plan, rows);
  std::vector<BlockForm> forms;
  const auto add = [&](std::uint8_t parts) {
    const BlockForm form = form_with(plan, config.recompute, parts);
    const auto same = [&](const BlockForm& other) { return other.again == form.again; };
    if (std::none_of(forms.begin(), forms.end(), same)) forms.push_back(form);
  };
  for (const char* text : usual_forms) add(*parse_form(text));
  for (const BlockKind& kind : kinds) {
    for (const std::uint8_t parts : kind.in_use) add(parts);
  }
  const auto rates = rates_for(plan, cluster);
  std::vector<RecomputeCost> costs;
  for (const BlockForm& form : forms) {
    if (kinds.empty()) break;
    StagePlan laid = rows;
    laid.forms = {};
    for (const BlockKind& kind : kinds) {
      for (const int unit : kind.units) {
        laid.forms.usual[unit] = form;
        laid.forms.usual[unit].on_host = rows.forms.on_host(unit);
      }
    }
    lay_out(plan, stage, config, laid);
    for (const BlockKind& kind : kinds) {
      costs.push_back(cost_of(plan, stage, kind, form, laid, rates));
    }
  }
  std::stable_sort(costs.begin(), costs.end(), [](const auto& a, const auto& b) {
    return a.experts != b.experts ? b.experts : a.kept > b.kept;
  });
  return costs;
}

}  // namespace trainctl
