// In how many rounds of messages the ranks of a group gather small shards. Here, so that the plan
// counts the rounds that comm/ makes.
#pragma once

#include <bit>
#include <cstdint>

namespace trainctl {

/// True for a whole so small, of so many ranks, that latency decides: then each round doubles what
/// a rank has (Bruck et al., "Efficient algorithms for all-to-all communications in multiport
/// message-passing systems", 1997, section 4). Otherwise each rank sends its shard to every other.
/// `bytes`: of all shards together.
inline bool gathers_by_doubling(std::int64_t ranks, std::int64_t bytes) {
  constexpr std::int64_t few_ranks = 8;  // their messages are all under way at once
  constexpr std::int64_t small = 64 << 10;
  return ranks > few_ranks && bytes <= small;
}

/// Messages one after the other: ceil(log2(ranks)) by doubling, else ranks - 1.
inline std::int64_t gather_rounds(std::int64_t ranks, std::int64_t bytes) {
  if (!gathers_by_doubling(ranks, bytes)) return ranks - 1;
  return std::bit_width(static_cast<std::uint64_t>(ranks - 1));
}

}  // namespace trainctl
