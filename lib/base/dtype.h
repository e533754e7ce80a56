// Element types, and bfloat16 and half precision as plain 2-byte values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace trainctl {

enum class DType : std::uint8_t { f32, bf16, f16, u8, u16, i32, i64, f64 };

/// Bytes per element.
constexpr std::int64_t size_of(DType type) {
  switch (type) {
    case DType::u8: return 1;
    case DType::bf16:
    case DType::f16:
    case DType::u16: return 2;
    case DType::f32:
    case DType::i32: return 4;
    case DType::i64:
    case DType::f64: return 8;
  }
  return 0;
}

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    case DType::u8: return "u8";
    case DType::u16: return "u16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::f64: return "fp64";
  }
  return "?";
}

/// bfloat16: the upper half of an fp32. Conversion from float rounds to nearest even.
struct bf16 {
  std::uint16_t bits;
};

inline float to_float(float value) { return value; }

inline float to_float(bf16 value) {
  const std::uint32_t wide = static_cast<std::uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &wide, sizeof result);
  return result;
}

inline bf16 to_bf16(float value) {
  std::uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  const std::uint32_t rounded = (wide + 0x7fffU + ((wide >> 16) & 1U)) >> 16;
  const std::uint32_t quiet_nan = (wide >> 16) | 0x40U;
  const bool is_nan = (wide & 0x7fffffffU) > 0x7f800000U;
  return bf16{static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded)};
}

template <class T>
T from_float(float value);
template <>
inline float from_float<float>(float value) {
  return value;
}
template <>
inline bf16 from_float<bf16>(float value) {
  return to_bf16(value);
}

/// The DType whose elements are T.
template <class T>
inline constexpr std::nullptr_t dtype_of = nullptr;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::u16;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<double> = DType::f64;

// IEEE 754 half precision as a plain 2-byte value: 5 bits of exponent, 10 of fraction, so numbers
// from 6e-8 to 65504. The conversions have no branches, so that compilers vectorise them.

struct fp16 {
  std::uint16_t bits;
};

inline float to_float(fp16 value) {
  constexpr std::uint32_t exponent_bits = 0x7c00U << 13;
  constexpr std::uint32_t rebias = (127U - 15U) << 23;
  const std::uint32_t moved = (value.bits & 0x7fffU) << 13;
  const std::uint32_t exponent = moved & exponent_bits;
  const std::uint32_t normal = moved + rebias;
  // Subnormal numbers have no leading 1: it is added and subtracted again.
  const float restored =
      std::bit_cast<float>(normal + (1U << 23)) - std::bit_cast<float>(113U << 23);
  const std::uint32_t small = exponent == 0 ? std::bit_cast<std::uint32_t>(restored) : normal;
  const std::uint32_t size = exponent == exponent_bits ? normal + rebias : small;
  return std::bit_cast<float>(size | (value.bits & 0x8000U) << 16);
}

/// Rounds to nearest even; values beyond 65504 become infinity.
inline fp16 to_fp16(float value) {
  constexpr std::uint32_t infinity = 0x7f800000U;
  constexpr std::uint32_t too_large = (127U + 16U) << 23;
  constexpr std::uint32_t min_normal = (127U - 14U) << 23;
  // Adding this moves the bits of a subnormal result, rounded by the addition, to the low bits.
  constexpr std::uint32_t shift = (127U - 15U + 23U - 10U + 1U) << 23;
  const std::uint32_t wide = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t size = wide & 0x7fffffffU;
  const std::uint32_t odd = (size >> 13) & 1U;
  const std::uint32_t normal = (size - ((127U - 15U) << 23) + 0xfffU + odd) >> 13;
  const float sum = std::bit_cast<float>(size) + std::bit_cast<float>(shift);
  const std::uint32_t small = std::bit_cast<std::uint32_t>(sum) - shift;
  const std::uint32_t special = size > infinity ? 0x7e00U : 0x7c00U;
  const std::uint32_t finite = size < min_normal ? small : normal;
  const std::uint32_t half = size >= too_large ? special : finite;
  return fp16{static_cast<std::uint16_t>(half | (wide >> 16 & 0x8000U))};
}

template <>
inline fp16 from_float<fp16>(float value) {
  return to_fp16(value);
}

template <>
inline constexpr DType dtype_of<fp16> = DType::f16;

}  // namespace trainctl
