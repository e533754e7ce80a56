// What all members of a group must agree on before a collective runs; internal to comm/.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/group_operation.h"

namespace trainctl {

struct CollectiveCall {
  GroupOperation operation = GroupOperation::barrier;
  DType dtype = DType::u8;
  int root = -1;             // broadcast
  std::int64_t bytes = 0;    // of the whole tensor; 0 for all_to_all, where it may differ
  std::uint64_t number = 0;  // 1 for the first collective of the group
  friend bool operator==(const CollectiveCall&, const CollectiveCall&) = default;
};

/// "all_reduce of 4096 bytes of fp32 as call 12", "broadcast of 8 bytes of i64 from rank 1 as call
/// 2".
std::string to_string(const CollectiveCall& call);

}  // namespace trainctl
