// The memory in which a rank collects what other ranks send it for a sum: a sum is cut into pieces,
// and the pieces of two rounds are under way at once. Here, so that the plan can count what comm/
// allocates.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainctl {

/// Bytes of one piece in a group of `ranks` >= 2: a multiple of 64 in [64 KiB, 1 MiB].
inline std::int64_t staging_piece_bytes(std::int64_t ranks) {
  constexpr std::int64_t round = 2 << 20;  // of all other ranks, where the bounds allow it
  constexpr std::int64_t shortest = 64 << 10;
  constexpr std::int64_t longest = 1 << 20;
  return std::clamp(round / (ranks - 1) / 64 * 64, shortest, longest);
}

/// What one rank allocates for such a group.
inline std::int64_t staging_bytes(std::int64_t ranks) {
  return 2 * (ranks - 1) * staging_piece_bytes(ranks);
}

}  // namespace trainctl
