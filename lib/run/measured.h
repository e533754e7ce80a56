// Measured against planned values: calls and bytes of every group's collectives and messages in the
// last step, and memory by category.
#pragma once

#include <string>
#include <vector>

#include "comm/traffic.h"
#include "plan/plan.h"

namespace trainctl {

/// All calls of one operation through the groups of one name, on one rank in one step.
struct TrafficRow {
  GroupOperation operation = GroupOperation::all_reduce;
  std::string group;  // group_name of plan/tables/mesh.h
  Traffic::Use planned;
  Traffic::Use measured;
  bool at_most = false;      // CollectiveUse::at_most
  bool fewer_calls = false;  // CollectiveUse::fewer_calls
  bool same_bytes() const {
    return at_most ? measured.bytes <= planned.bytes : measured.bytes == planned.bytes;
  }
  bool same_calls() const {
    return fewer_calls ? measured.count <= planned.count : measured.count == planned.count;
  }
  bool same() const { return same_calls() && same_bytes(); }
};

/// `planned`: of this rank (estimate_communication). Rows in its order, then those that it lacks.
std::vector<TrafficRow> compare_traffic(const std::vector<CollectiveUse>& planned,
                                        const Traffic& traffic);

/// "all_reduce 'gradients dp': 4 calls with 1,024 bytes, planned 3 with 768", one line for each row
/// that differs; empty if all are equal.
std::string differences(const std::vector<TrafficRow>& rows);

}  // namespace trainctl
