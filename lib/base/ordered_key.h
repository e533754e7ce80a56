// Numbers of fp32 as whole numbers in the same order, so that the largest of many can be kept by
// threads that change one word of memory at once.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace trainctl {

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

}  // namespace trainctl
