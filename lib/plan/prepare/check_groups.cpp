#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/at.h"
#include "config/schema/optimizers.h"
#include "plan/prepare/runnable.h"
#include "plan/tables/optimizer_groups.h"

namespace trainctl {

namespace {

/// A parameter of some stage, each once, except those that no entry takes.
std::vector<const ParamSpec*> grouped_parameters(const Plan& plan) {
  std::vector<const ParamSpec*> list;
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& row : stage.parameters) {
      if (!row.second_home && row.kind != ParamKind::expert_bias) list.push_back(&row);
    }
  }
  return list;
}

/// How a pattern without effect is best told.
struct EmptyPattern {
  std::string message, help;
};

EmptyPattern describe_empty(const std::string& pattern, int entry,
                            const std::vector<const ParamSpec*>& parameters) {
  const std::string shown = "\"" + pattern + "\" of entry " + std::to_string(entry + 1);
  std::set<int> earlier;
  std::vector<std::string> names;
  for (const ParamSpec* row : parameters) {
    names.push_back(row->name);
    if (matches(pattern, row->name)) earlier.insert(row->group + 1);
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
  return {shown + " takes no parameter: " + (one ? "entry " : "entries ") + list +
              (one ? " comes" : " come") + " first and " + (one ? "takes" : "take") +
              " all that it matches",
          "put entry " + std::to_string(entry + 1) + " before entry " +
              std::to_string(*earlier.begin())};
}

void check_muon_device(const Plan& plan, const Config& config, const SourceMap& sources,
                       Diagnostics& diagnostics) {
  if (plan.device != DeviceKind::cuda || !uses(config.optimizer, OptimizerType::muon)) return;
  const std::string path =
      config.optimizer.type == OptimizerType::muon ? "optimizer.type" : "optimizer.groups";
  diagnostics.add({Severity::error, "muon-device", path,
                   "muon is not built for CUDA devices yet; it runs on the CPU",
                   "set parallel.device to cpu, or use adamw", sources.find(path)});
}

}  // namespace

void check_groups(const Plan& plan, const Config& config, const SourceMap& sources,
                  Diagnostics& diagnostics) {
  check_muon_device(plan, config, sources, diagnostics);
  const std::vector<OptimizerGroup>& groups = config.optimizer.groups.list;
  if (groups.empty()) return;
  const std::vector<const ParamSpec*> parameters = grouped_parameters(plan);
  const std::string path = "optimizer.groups";
  for (const ParamSpec* row : parameters) {
    const bool is_muon = row->group >= 0 && row->update == OptimizerType::muon;
    if (!is_muon || may_have_muon(*row)) continue;
    diagnostics.add({Severity::error, "group-type", path,
                     "entry " + std::to_string(row->group + 1) + " gives type muon to " +
                         row->name + ", not a matrix between features",
                     "put an entry with type adamw for it before entry " +
                         std::to_string(row->group + 1) + ", or match less",
                     sources.find(path)});
    break;  // one of them says it
  }
  for (int entry = 0; entry < std::ssize(groups); ++entry) {
    for (const std::string& pattern : at(groups, entry).match) {
      const bool takes = std::ranges::any_of(parameters, [&](const ParamSpec* row) {
        return row->group == entry && matches(pattern, row->name);
      });
      if (takes) continue;
      const EmptyPattern found = describe_empty(pattern, entry, parameters);
      diagnostics.add(
          {Severity::error, "group-empty", path, found.message, found.help, sources.find(path)});
    }
  }
}

}  // namespace trainctl
