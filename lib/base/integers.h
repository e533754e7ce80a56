// Arithmetic on whole numbers: divisions that round up, keys in the order of fp32, and a hash.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>

namespace trainctl {

/// The least whole number that is not below value / unit; value >= 0, unit > 0.
constexpr std::int64_t divide_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit;
}

/// The least multiple of `unit` that is not below `value`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return divide_up(value, unit) * unit;
}

// Numbers of fp32 as whole numbers in the same order, so that the largest of many can be kept by
// threads that change one word of memory at once.

/// Larger for the larger number and never 0, so that memory of zeros is below every number. What is
/// not a number is above all of them.
constexpr std::uint32_t ordered_key(float value) {
  if (value != value) return std::numeric_limits<std::uint32_t>::max();
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}

/// The number of a key; of 0, which is none's, -infinity.
constexpr float number_of_key(std::uint32_t key) {
  if (key == 0) return -std::numeric_limits<float>::infinity();
  return std::bit_cast<float>(key >> 31 != 0 ? key & 0x7fffffffU : ~key);
}

// FNV-1a, 64 bit: a stable hash for plans, cache keys and replica checks. Not cryptographic.

/// Folds `bytes` into `state`; start from `fnv_offset`.
inline constexpr std::uint64_t fnv_offset = 0xcbf29ce484222325ULL;

constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t state = fnv_offset) {
  for (char byte : bytes) {
    state ^= static_cast<unsigned char>(byte);
    state *= 0x100000001b3ULL;
  }
  return state;
}

}  // namespace trainctl
