#include "checkpoint/saved_values.h"

#include <algorithm>

#include "base/at.h"
#include "config/schema/optimizers.h"
#include "config/schema/words.h"

namespace trainctl {

std::vector<std::string> saved_values(const ParamSpec& parameter,
                                      const OptimizerConfig& optimizer) {
  std::vector<std::string> words{"parameters"};
  for (const OptimizerState& state : kept_states(parameter.update, optimizer)) {
    words.emplace_back(state.word);
  }
  return words;
}

namespace {

/// SavedTensor::optimizer.
std::string keeper_of(const ParamSpec& parameter, int value, const OptimizerConfig& optimizer) {
  const bool is_state = value > 0 && value <= updated_states(parameter.update, optimizer);
  if (!is_state || parameter.update == optimizer.type) return "";
  return std::string(word_of(parameter.update));
}

}  // namespace

int saved_kinds(const std::vector<ParamSpec>& table, const OptimizerConfig& optimizer) {
  std::size_t most = 0;
  for (const ParamSpec& parameter : table) {
    most = std::max(most, saved_values(parameter, optimizer).size());
  }
  return static_cast<int>(most);
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
  const int kinds = saved_kinds(store.table(), optimizer);
  std::vector<Region> regions;
  for (int value = 0; value < kinds; ++value) {
    for (const SavedPart& one : parts) {
      const ParamSpec& parameter = at(store.table(), one.parameter);
      const std::vector<std::string> words = saved_values(parameter, optimizer);
      if (value >= std::ssize(words)) continue;
      regions.push_back(
          {parameter.name, at(words, value), saved_shape(parameter, plan.model), one.part.box,
           values_at(store, value, one.parameter, one.part.first, one.part.box.numel()),
           keeper_of(parameter, value, optimizer)});
    }
  }
  return regions;
}

}  // namespace trainctl
