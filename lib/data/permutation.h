// A pseudo-random order of [0, count) that is computed, not stored: a keyed Feistel network over
// the next even power of two, walked until it lands inside.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>

namespace trainctl {

/// Where `index` of [0, count) goes: a bijection of [0, count) for every `key`. Takes fewer than
/// four passes on average.
constexpr std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t key) {
  assert(index < count);
  if (count == 1) return 0;
  const int half = (std::bit_width(count - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half;
    std::uint64_t right = index & mask;
    for (std::uint64_t round = 1; round <= 6; ++round) {
      // The finaliser of splitmix64 (Steele, Lea, Flood 2014) as the round function.
      std::uint64_t mixed = (right ^ key) + round * 0x9e3779b97f4a7c15ULL;
      mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
      mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
      mixed ^= mixed >> 31;
      const std::uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    index = (left << half) | right;
  } while (index >= count);
  return index;
}

}  // namespace trainctl
