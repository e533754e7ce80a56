// The operations of a group, and the messages and memory of collectives over host memory.
#pragma once

#include <algorithm>
#include <bit>
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
/// Whether the operation is a message between two ranks, not a collective.
constexpr bool is_message(GroupOperation operation) {
  return operation == GroupOperation::send || operation == GroupOperation::receive;
}
/// The name of an operation, such as "all_reduce", as a string literal.
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

// Messages and memory of collectives over host memory. Defined here, so that the plan counts what
// comm/ uses.

/// Whether an all-gather uses doubling, for small data on many ranks, where latency dominates: in
/// each round a rank doubles the number of its shards (Bruck et al., "Efficient algorithms for
/// all-to-all communications in multiport message-passing systems", 1997, section 4). Otherwise
/// each rank sends its shard to every other rank. `bytes` is the size of all shards together.
inline bool gathers_by_doubling(std::int64_t ranks, std::int64_t bytes) {
  constexpr std::int64_t few_ranks = 8;  // their messages are all sent at the same time
  constexpr std::int64_t small = 64 << 10;
  return ranks > few_ranks && bytes <= small;
}

/// Number of successive messages in an all-gather: ceil(log2(ranks)) by doubling, else ranks - 1.
inline std::int64_t gather_rounds(std::int64_t ranks, std::int64_t bytes) {
  if (!gathers_by_doubling(ranks, bytes)) return ranks - 1;
  return std::bit_width(static_cast<std::uint64_t>(ranks - 1));
}

/// Bytes of a piece of data for a sum: a rank receives the data of other ranks in pieces. A
/// multiple of 64 in [64 KiB, 1 MiB], for a group of `ranks` >= 2.
inline std::int64_t staging_piece_bytes(std::int64_t ranks) {
  constexpr std::int64_t round = 2 << 20;  // pieces of all other ranks together, within the bounds
  constexpr std::int64_t shortest = 64 << 10;
  constexpr std::int64_t longest = 1 << 20;
  return std::clamp(round / (ranks - 1) / 64 * 64, shortest, longest);
}

/// Bytes that a rank allocates for such a group: the pieces of two rounds, which overlap.
inline std::int64_t staging_bytes(std::int64_t ranks) {
  return 2 * (ranks - 1) * staging_piece_bytes(ranks);
}

}  // namespace trainctl
