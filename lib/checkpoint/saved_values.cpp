#include "checkpoint/saved_values.h"

#include "base/at.h"
#include "plan/rules/resolve.h"

namespace trainctl {

std::vector<std::string> saved_values(const OptimizerConfig& optimizer) {
  if (optimizer.type == OptimizerType::adamw) return {"parameters", "exp_avg", "exp_avg_sq"};
  if (optimizer_values(optimizer).empty()) return {"parameters"};
  return {"parameters", "momentum"};
}

Tensor values_at(const ParamStore& store, int value, int parameter, std::int64_t first,
                 std::int64_t count) {
  const std::int64_t begin = first - store.owned(parameter).begin;
  const Tensor held = value == 0 ? store.master(parameter) : store.state(parameter, value - 1);
  return held.view({held.numel()}).slice(begin, begin + count);
}

std::vector<Region> saved_regions(const Plan& plan, const ParamStore& store,
                                  const OptimizerConfig& optimizer, std::int64_t rank) {
  const std::vector<SavedPart> parts = saved_parts(plan, store.ownership(), rank);
  const std::vector<std::string> values = saved_values(optimizer);
  std::vector<Region> regions;
  for (int value = 0; value < static_cast<int>(values.size()); ++value) {
    for (const SavedPart& one : parts) {
      const ParamSpec& parameter = at(store.table(), one.parameter);
      regions.push_back(
          {parameter.name, at(values, value), saved_shape(parameter, plan.model), one.part.box,
           values_at(store, value, one.parameter, one.part.first, one.part.box.numel())});
    }
  }
  return regions;
}

}  // namespace trainctl
