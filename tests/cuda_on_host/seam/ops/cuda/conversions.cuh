// lib/ops/cuda/conversions.cuh by the host's conversions.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"

namespace trainctl::cuda {

inline std::uint16_t bfloat_of_float(float value) { return to_bf16(value).bits; }
inline std::uint16_t half_of_float(float value) { return to_fp16(value).bits; }
inline float float_of_half(std::uint16_t bits) { return to_float(fp16{bits}); }
template <class T>
std::uint32_t pack(float low, float high) {
  const auto bits = [](float value) {
    if constexpr (std::is_same_v<T, bf16>) return bfloat_of_float(value);
    return half_of_float(value);
  };
  return std::uint32_t{bits(high)} << 16 | bits(low);
}

inline float exp2_fast(float x) { return std::exp2(x); }

}  // namespace trainctl::cuda
