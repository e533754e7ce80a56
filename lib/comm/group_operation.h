// The operations of a group.
#pragma once

#include <cstdint>

namespace trainctl {

enum class GroupOperation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  send,
  receive,
  barrier,
};
inline constexpr int operation_count = 8;
/// "all_reduce"; a literal.
const char* name_of(GroupOperation operation);

}  // namespace trainctl
