#include "run/measured.h"

#include <algorithm>

#include "base/units.h"

namespace trainctl {

namespace {

TrafficRow& row_of(std::vector<TrafficRow>& rows, GroupOperation operation,
                   const std::string& group) {
  const auto same = std::find_if(rows.begin(), rows.end(), [&](const TrafficRow& row) {
    return row.operation == operation && row.group == group;
  });
  return same != rows.end() ? *same : rows.emplace_back(TrafficRow{operation, group, {}, {}});
}

}  // namespace

std::vector<TrafficRow> compare_traffic(const std::vector<CollectiveUse>& planned,
                                        const Traffic& traffic) {
  std::vector<TrafficRow> rows;
  for (const CollectiveUse& use : planned) {
    TrafficRow& row = row_of(rows, use.operation, group_name(use.purpose, use.group));
    row.planned.count += use.count;
    row.planned.bytes += use.bytes;
    row.at_most = row.at_most || use.at_most;
    row.fewer_calls = row.fewer_calls || use.fewer_calls;
  }
  for (const Traffic::Row& group : traffic.rows()) {
    for (std::size_t i = 0; i < group.uses.size(); ++i) {
      if (group.uses[i].count == 0) continue;
      row_of(rows, static_cast<GroupOperation>(i), group.group).measured = group.uses[i];
    }
  }
  return rows;
}

std::string differences(const std::vector<TrafficRow>& rows) {
  std::string text;
  for (const TrafficRow& row : rows) {
    if (row.same()) continue;
    text += std::string(name_of(row.operation)) + " '" + row.group +
            "': " + format_grouped(row.measured.count) + " calls with " +
            format_grouped(row.measured.bytes) + " bytes, planned " +
            (row.fewer_calls ? "at most " : "") + format_grouped(row.planned.count) +
            (row.at_most ? " with at most " : " with ") + format_grouped(row.planned.bytes) + "\n";
  }
  return text;
}

}  // namespace trainctl
