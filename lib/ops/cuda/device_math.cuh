// What the CUDA kernels share: vector loads and stores of fp32 and bf16 as floats, sums over a
// block, and launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "base/dtype.h"

namespace trainctl::cuda {

/// Elements in one 16-byte access.
template <class T>
inline constexpr int vector_width = static_cast<int>(16 / sizeof(T));

/// Whether all of the pointers that are not null start at a multiple of 16 bytes.
inline bool all_aligned(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return bits % 16 == 0;
}

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

template <class T>
__device__ T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline bf16 narrow<bf16>(float value) {
  return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

/// `width` elements from `from` as floats: width 1, or a multiple of the 16-byte access at an
/// address aligned to it. Plain loads: the memory may be written by the same kernel.
template <int width, class T>
__device__ void load(const T* from, float (&to)[width]) {
  constexpr int step = width == 1 ? 1 : vector_width<T>;
  struct alignas(step * sizeof(T)) Chunk {
    T at[step];
  };
#pragma unroll
  for (int begin = 0; begin < width; begin += step) {
    const Chunk chunk = *reinterpret_cast<const Chunk*>(from + begin);
#pragma unroll
    for (int i = 0; i < step; ++i) to[begin + i] = widen(chunk.at[i]);
  }
}

/// The counterpart of load. `step` is smaller than the 16-byte access where fewer elements follow
/// one another.
template <int width, class T>
__device__ void store(T* to, const float (&from)[width]) {
  constexpr int step = width < vector_width<T> ? width : vector_width<T>;
  struct alignas(step * sizeof(T)) Chunk {
    T at[step];
  };
#pragma unroll
  for (int begin = 0; begin < width; begin += step) {
    Chunk chunk;
#pragma unroll
    for (int i = 0; i < step; ++i) chunk.at[i] = narrow<T>(from[begin + i]);
    *reinterpret_cast<Chunk*>(to + begin) = chunk;
  }
}

/// The sum of `value` over the block's threads, in a fixed order, for all of them. The block is
/// whole warps, at most 32.
__device__ inline float block_sum(float value) {
  __shared__ float sums[32];
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  if (lane == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = lane < warps ? sums[lane] : 0.0F;
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  __syncthreads();  // the next call writes `sums` again
  return value;
}

}  // namespace trainctl::cuda
