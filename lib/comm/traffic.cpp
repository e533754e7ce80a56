#include "comm/traffic.h"

#include <algorithm>

namespace trainctl {

std::string_view name_of(Operation operation) {
  static constexpr std::array<std::string_view, operation_count> names{
      "all_reduce", "reduce_scatter", "all_gather", "broadcast",
      "all_to_all", "send",           "receive",    "barrier"};
  return names[static_cast<std::size_t>(operation)];
}

Traffic::Row& Traffic::row(const std::string& group) {
  const auto same =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.group == group; });
  return same != rows_.end() ? *same : rows_.emplace_back(Row{group, {}, 0});
}

void Traffic::begin() {
  for (Row& row : rows_) row.uses = {};
  counting_ = true;
}

}  // namespace trainctl
