// Integer arithmetic: divisions that round up, integer keys in the order of fp32, and a hash.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>

namespace trainctl {

/// value / unit rounded up; value >= 0, unit > 0.
constexpr std::int64_t divide_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit;
}

/// The least multiple of `unit` that is at least `value`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return divide_up(value, unit) * unit;
}

// Maps fp32 numbers to integers in the same order, so that threads can compute a maximum by atomic
// operations on one word.

/// A key that grows with the number and is never 0, so that zeroed memory is below every number.
/// NaN has the largest key.
constexpr std::uint32_t ordered_key(float value) {
  if (value != value) return std::numeric_limits<std::uint32_t>::max();
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}

/// The number of a key; -infinity for 0, which is the key of no number.
constexpr float number_of_key(std::uint32_t key) {
  if (key == 0) return -std::numeric_limits<float>::infinity();
  return std::bit_cast<float>(key >> 31 != 0 ? key & 0x7fffffffU : ~key);
}

// FNV-1a, 64 bit: a stable hash for plans, cache keys and replica checks; not cryptographic.

/// Adds `bytes` to the hash `state`, which starts as `fnv_offset`.
inline constexpr std::uint64_t fnv_offset = 0xcbf29ce484222325ULL;

constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t state = fnv_offset) {
  for (char byte : bytes) {
    state ^= static_cast<unsigned char>(byte);
    state *= 0x100000001b3ULL;
  }
  return state;
}

}  // namespace trainctl
