// Counts calls, bytes and memory of the groups of one rank in a step, for comparison with the plan.
// A call is counted when it is made, before it is queued.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/group_operation.h"

namespace trainctl {

/// Owned by a World. Only the thread that calls its groups may use it, and `memory` only while no
/// call is in flight.
class Traffic {
 public:
  struct Use {
    std::int64_t count = 0;
    std::int64_t bytes =
        0;  // of whole tensors: the result of a gather, the input of a reduce-scatter
  };
  struct Row {
    std::string group;
    std::array<Use, operation_count> uses;  // by GroupOperation
    std::int64_t memory = 0;                // bytes allocated for staging sums
  };

  /// The row of all groups with that name; lives as long as this object. Groups of one rank need
  /// none, because they send nothing.
  Row& row(const std::string& group);
  /// Counting starts at zero; calls before start and after stop are not counted. Allocates nothing.
  void begin();
  void end() { counting_ = false; }
  void add(Row& row, GroupOperation operation, std::int64_t bytes) const {
    if (!counting_) return;
    Use& use = row.uses[static_cast<std::size_t>(operation)];
    ++use.count;
    use.bytes += bytes;
  }
  /// Of the step so far, by row; and what `later` has beyond `earlier` once more, for calls that
  /// are made again without the groups.
  using Counts = std::vector<std::array<Use, operation_count>>;
  Counts counts() const;
  void repeat(const Counts& earlier, const Counts& later);
  /// In the order in which the groups were created.
  const std::deque<Row>& rows() const { return rows_; }

 private:
  std::deque<Row> rows_;
  bool counting_ = false;
};

}  // namespace trainctl
