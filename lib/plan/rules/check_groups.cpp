// What optimizer.groups may say of the parameters of a model.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "config/schema/optimizers.h"
#include "plan/rules/check.h"
#include "plan/tables/optimizer_groups.h"

namespace trainctl {

namespace {

/// How a pattern without effect is best told.
struct EmptyPattern {
  std::string message, help;
};

/// `entry`: from 1. `parameters`: those that entries may take.
EmptyPattern describe_empty(const std::string& pattern, int entry,
                            const std::vector<ParamSpec>& parameters) {
  const std::string shown = "\"" + pattern + "\" of entry " + std::to_string(entry);
  std::set<int> earlier;
  std::vector<std::string> names;
  for (const ParamSpec& row : parameters) {
    names.push_back(row.name);
    if (matches(pattern, row.name)) earlier.insert(row.group + 1);
  }
  if (earlier.empty()) {
    const std::string near = nearest(pattern, names);
    return {shown + " matches no parameter",
            near.empty() ? "names are like " + names.back() + "; `trainctl plan` lists all of them"
                         : "did you mean " + near + "?"};
  }
  std::string list;
  for (const int one : earlier) list += (list.empty() ? "" : ", ") + std::to_string(one);
  const bool one = earlier.size() == 1;
  return {
      shown + " takes no parameter: " + (one ? "entry " : "entries ") + list +
          (one ? " comes" : " come") + " first and " + (one ? "takes" : "take") +
          " all that it matches",
      "put entry " + std::to_string(entry) + " before entry " + std::to_string(*earlier.begin())};
}

void check_types(const std::vector<ParamSpec>& parameters, Check& check) {
  const auto wrong = std::ranges::find_if(parameters, [](const ParamSpec& row) {
    return row.group >= 0 && row.update == OptimizerType::muon && !may_have_muon(row);
  });
  if (wrong == parameters.end()) return;
  const std::string entry = std::to_string(wrong->group + 1);
  check.error(
      "group-type", "optimizer.groups",
      "entry " + entry + " gives type muon to " + wrong->name + ", not a matrix between features",
      "put an entry with type adamw for it before entry " + entry + ", or match less");
}

void check_patterns(const std::vector<OptimizerGroup>& groups,
                    const std::vector<ParamSpec>& parameters, Check& check) {
  for (int entry = 0; const OptimizerGroup& group : groups) {
    for (const std::string& pattern : group.match) {
      const bool takes = std::ranges::any_of(parameters, [&](const ParamSpec& row) {
        return row.group == entry && matches(pattern, row.name);
      });
      if (takes) continue;
      const EmptyPattern found = describe_empty(pattern, entry + 1, parameters);
      check.error("group-empty", "optimizer.groups", found.message, found.help);
    }
    ++entry;
  }
}

}  // namespace

void check_groups(const Facts& facts, Check& check) {
  const OptimizerConfig& optimizer = facts.config.optimizer;
  const bool known = check.clean({"model.num_layers", "model.hidden_size", "model.layers",
                                  "model.layer_pattern", "moe.num_experts", "optimizer.groups"});
  if (optimizer.groups.list.empty() || !known) return;
  const Mesh alone;
  std::vector<ParamSpec> parameters =
      make_parameters({.model = facts.model, .mesh = alone, .optimizer = &optimizer},
                      {all_units(facts.model.layers)});
  std::erase_if(parameters,
                [](const ParamSpec& row) { return row.kind == ParamKind::expert_bias; });
  check_types(parameters, check);
  check_patterns(optimizer.groups.list, parameters, check);
}

}  // namespace trainctl
