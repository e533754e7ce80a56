// How often the groups of one rank are called in a step, with how many bytes, and the memory they
// take: what the plan is held against. Counted where a call is made, before it is queued.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>

#include "comm/group_operation.h"

namespace trainctl {

/// Owned by a World; only the thread that calls its groups may use it, `memory` only while no call
/// is under way.
class Traffic {
 public:
  struct Use {
    std::int64_t count = 0;
    std::int64_t bytes = 0;  // of whole tensors: what a gather makes, what a reduce-scatter takes
  };
  struct Row {
    std::string group;
    std::array<Use, operation_count> uses;  // by GroupOperation
    std::int64_t memory = 0;                // bytes allocated to stage sums in
  };

  /// The row of all groups of that name, which lives as long as this. Groups of one rank need none:
  /// nothing is sent in them.
  Row& row(const std::string& group);
  /// Counting starts at zero, and stops; nothing is counted before and after. Allocates nothing.
  void begin();
  void end() { counting_ = false; }
  void add(Row& row, GroupOperation operation, std::int64_t bytes) const {
    if (!counting_) return;
    Use& use = row.uses[static_cast<std::size_t>(operation)];
    ++use.count;
    use.bytes += bytes;
  }
  /// In the order in which the groups were made.
  const std::deque<Row>& rows() const { return rows_; }

 private:
  std::deque<Row> rows_;
  bool counting_ = false;
};

}  // namespace trainctl
