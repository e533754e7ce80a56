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
/// Between two ranks, not a collective.
constexpr bool is_message(GroupOperation operation) {
  return operation == GroupOperation::send || operation == GroupOperation::receive;
}
/// "all_reduce"; a literal.
constexpr const char* name_of(GroupOperation operation) {
  switch (operation) {
    case GroupOperation::all_reduce: return "all_reduce";
    case GroupOperation::reduce_scatter: return "reduce_scatter";
    case GroupOperation::all_gather: return "all_gather";
    case GroupOperation::broadcast: return "broadcast";
    case GroupOperation::all_to_all: return "all_to_all";
    case GroupOperation::send: return "send";
    case GroupOperation::receive: return "receive";
    case GroupOperation::barrier: return "barrier";
  }
  return "";
}

}  // namespace trainctl
