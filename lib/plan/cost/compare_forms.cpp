#include <algorithm>

#include "base/at.h"
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

/// The parts that some layer of the stage makes again.
std::vector<std::uint8_t> parts_in_use(const Plan& plan, const StagePlan& rows) {
  std::vector<std::uint8_t> parts;
  for (const int unit : first_blocks(rows.units, plan.model.layers, plan.model.layers)) {
    parts.push_back(rows.forms.of(unit, false).again);
    if (!rows.forms.is_partial.empty()) parts.push_back(rows.forms.of(unit, true).again);
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return parts;
}

}  // namespace

std::vector<RecomputeCost> compare_forms(const Plan& plan, int stage, const Config& config) {
  const StagePlan& rows = at(plan.stages, stage);
  const std::vector<int> blocks = first_blocks(rows.units, plan.model.layers, plan.model.layers);
  if (blocks.empty()) return {};
  const std::vector<std::uint8_t> in_use = parts_in_use(plan, rows);
  std::vector<BlockForm> forms;
  const auto add = [&](std::uint8_t parts) {
    const BlockForm form = form_with(plan, config.recompute, parts);
    const auto same = [&](const BlockForm& other) { return other.again == form.again; };
    if (std::none_of(forms.begin(), forms.end(), same)) forms.push_back(form);
  };
  for (const char* text : usual_forms) add(*parse_form(text));
  for (const std::uint8_t parts : in_use) add(parts);
  const auto rates = given_rates(config.cluster);
  std::vector<RecomputeCost> costs;
  for (const BlockForm& form : forms) {
    StagePlan laid = rows;
    laid.forms = {};
    for (const int unit : blocks) {
      laid.forms.usual[unit] = form;
      laid.forms.usual[unit].on_host = rows.forms.on_host(unit);
    }
    lay_out(plan, stage, config, laid);
    const FormBytes bytes = form_bytes(plan, stage, blocks.front(), form);
    const RepeatCost repeat = repeat_cost(plan, blocks.front(), form);
    RecomputeCost& cost = costs.emplace_back();
    cost.form = form_text(form.again);
    cost.in_use = std::binary_search(in_use.begin(), in_use.end(), form.again);
    cost.kept = bytes.kept;
    cost.once = bytes.once;
    cost.rank = laid.activation_slots.bytes;
    cost.on_host = laid.activation_slots.host_bytes;
    cost.flops = repeat.flops;
    if (rates) {
      cost.seconds =
          repeat_seconds(repeat, *rates) + repeat_wire_seconds(plan, blocks.front(), form, *rates);
    }
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const auto& a, const auto& b) { return a.kept > b.kept; });
  return costs;
}

}  // namespace trainctl
