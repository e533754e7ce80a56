#include "plan/tables/optimizer_groups.h"

#include <algorithm>

#include "base/at.h"
#include "config/schema/optimizers.h"

namespace trainctl {

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0;
  std::size_t in = 0;
  std::size_t star = std::string_view::npos;  // the last one, which took name[resumed, in)
  std::size_t resumed = 0;
  while (in < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      resumed = in;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[in])) {
      ++at;
      ++in;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in = ++resumed;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

int group_of(const ParamSpec& parameter, const OptimizerGroups& groups) {
  if (parameter.kind == ParamKind::expert_bias) return -1;
  const auto takes = [&](const OptimizerGroup& group) {
    return std::ranges::any_of(
        group.match, [&](const std::string& pattern) { return matches(pattern, parameter.name); });
  };
  const auto found = std::ranges::find_if(groups.list, takes);
  return found == groups.list.end() ? -1 : static_cast<int>(found - groups.list.begin());
}

bool is_muon_matrix(const ParamSpec& parameter) {
  using enum ParamKind;
  constexpr ParamKind kinds[] = {query,     key,         value,         attention_output,
                                 mlp_gate,  mlp_up,      mlp_down,      expert_gate,
                                 expert_up, expert_down, attention_gate};
  return !parameter.bias && std::ranges::find(kinds, parameter.kind) != std::end(kinds);
}

bool may_have_muon(const ParamSpec& parameter) {
  const bool more =
      parameter.kind == ParamKind::router || parameter.kind == ParamKind::position_embedding;
  return is_muon_matrix(parameter) || (more && !parameter.bias);
}

void assign_optimizer(const OptimizerConfig& optimizer, ParamSpec& parameter) {
  parameter.update = is_muon_matrix(parameter) ? optimizer.type : rest_of(optimizer.type);
  parameter.group = group_of(parameter, optimizer.groups);
  if (parameter.group < 0) return;
  const OptimizerGroup& group = at(optimizer.groups.list, parameter.group);
  if (group.type) parameter.update = *group.type;
  parameter.rate_factor = group.lr_mult;
  if (!group.wd_mult) return;
  parameter.decay = *group.wd_mult > 0;
  parameter.decay_factor = *group.wd_mult;
}

}  // namespace trainctl
