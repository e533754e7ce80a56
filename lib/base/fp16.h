// IEEE 754 half precision as a plain 2-byte value: 5 bits of exponent, 10 of fraction, so numbers
// from 6e-8 to 65504. The conversions have no branches and compilers make vector code of them.
#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace trainctl {

struct fp16 {
  std::uint16_t bits;
};

inline float to_float(fp16 value) {
  constexpr std::uint32_t exponent_bits = 0x7c00U << 13;
  constexpr std::uint32_t rebias = (127U - 15U) << 23;
  const std::uint32_t moved = (value.bits & 0x7fffU) << 13;
  const std::uint32_t exponent = moved & exponent_bits;
  const std::uint32_t normal = moved + rebias;
  // Below the least normal number the leading 1 is missing: put one there and subtract it again.
  const float restored =
      std::bit_cast<float>(normal + (1U << 23)) - std::bit_cast<float>(113U << 23);
  const std::uint32_t small = exponent == 0 ? std::bit_cast<std::uint32_t>(restored) : normal;
  const std::uint32_t size = exponent == exponent_bits ? normal + rebias : small;
  return std::bit_cast<float>(size | (value.bits & 0x8000U) << 16);
}

/// Rounds to nearest even; beyond 65504 to infinity.
inline fp16 to_fp16(float value) {
  constexpr std::uint32_t infinity = 0x7f800000U;
  constexpr std::uint32_t too_large = (127U + 16U) << 23;
  constexpr std::uint32_t least_normal = (127U - 14U) << 23;
  // Adding this leaves a number below the least normal one in the low bits, rounded by the sum.
  constexpr std::uint32_t shift = (127U - 15U + 23U - 10U + 1U) << 23;
  const std::uint32_t wide = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t size = wide & 0x7fffffffU;
  const std::uint32_t odd = (size >> 13) & 1U;
  const std::uint32_t normal = (size - ((127U - 15U) << 23) + 0xfffU + odd) >> 13;
  const float sum = std::bit_cast<float>(size) + std::bit_cast<float>(shift);
  const std::uint32_t small = std::bit_cast<std::uint32_t>(sum) - shift;
  const std::uint32_t special = size > infinity ? 0x7e00U : 0x7c00U;
  const std::uint32_t finite = size < least_normal ? small : normal;
  const std::uint32_t half = size >= too_large ? special : finite;
  return fp16{static_cast<std::uint16_t>(half | (wide >> 16 & 0x8000U))};
}

template <>
inline fp16 from_float<fp16>(float value) {
  return to_fp16(value);
}

template <>
struct dtype_of<fp16> {
  static constexpr DType value = DType::f16;
};

}  // namespace trainctl
