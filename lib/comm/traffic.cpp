#include "comm/traffic.h"

#include <algorithm>

namespace trainctl {

Traffic::Row& Traffic::row(const std::string& group) {
  const auto same =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.group == group; });
  return same != rows_.end() ? *same : rows_.emplace_back(Row{group, {}, 0});
}

Traffic::Counts Traffic::counts() const {
  Counts all;
  for (const Row& row : rows_) all.push_back(row.uses);
  return all;
}

void Traffic::repeat(const Counts& earlier, const Counts& later) {
  for (std::size_t row = 0; row < later.size(); ++row) {
    for (std::size_t i = 0; i < operation_count; ++i) {
      const Use before = row < earlier.size() ? earlier[row][i] : Use{};
      rows_[row].uses[i].count += later[row][i].count - before.count;
      rows_[row].uses[i].bytes += later[row][i].bytes - before.bytes;
    }
  }
}

void Traffic::begin() {
  for (Row& row : rows_) row.uses = {};
  counting_ = true;
}

}  // namespace trainctl
