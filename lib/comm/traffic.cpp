#include "comm/traffic.h"

#include <algorithm>

namespace trainctl {

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
