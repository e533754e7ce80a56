// Conversions of elements by PTX instructions. cuda_bf16.h and cuda_fp16.h have these too, but take
// nvcc longer than most kernels.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"

namespace trainctl::cuda {

/// Convert one element, rounded to nearest even.
__device__ inline std::uint16_t bfloat_of_float(float value) {
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline std::uint16_t half_of_float(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
/// Converts two elements into one register, with `low` in its lower half.
template <class T>
__device__ std::uint32_t pack(float low, float high) {
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}
__device__ inline float float_of_half(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

/// 2^x by the special-function unit, with relative error 2^-22; 0 for -infinity.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace trainctl::cuda
