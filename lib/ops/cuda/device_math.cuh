// Device functions shared by kernels: loads and stores of fp32, bf16 and fp16 vectors as floats,
// and sums over threads.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "base/dtype.h"
#include "ops/cuda/block.cuh"
#include "ops/cuda/conversions.cuh"

namespace trainctl::cuda {

/// The number of elements in a 16-byte access.
template <class T>
inline constexpr int vector_width = static_cast<int>(16 / sizeof(T));

/// Whether all non-null pointers are aligned to 16 bytes.
inline bool all_aligned(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return bits % 16 == 0;
}

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
__device__ inline float widen(fp16 value) { return float_of_half(value.bits); }

/// Converts to T, rounded to nearest even.
template <class T>
__device__ T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline bf16 narrow<bf16>(float value) {
  return bf16{bfloat_of_float(value)};
}
template <>
__device__ inline fp16 narrow<fp16>(float value) {
  return fp16{half_of_float(value)};
}

/// Elements per memory access when `width` elements are moved: at most 16 bytes.
template <class T, int width>
inline constexpr int access_width = width < vector_width<T> ? width : vector_width<T>;

/// Loads `width` elements as floats; `from` must be aligned to the access. Uses plain loads,
/// because the same kernel may write this memory.
template <int width, class T>
__device__ void load(const T* from, float (&to)[width]) {
  constexpr int step = access_width<T, width>;
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

/// Stores `width` floats, converted to T; `to` must be aligned to the access.
template <int width, class T>
__device__ void store(T* to, const float (&from)[width]) {
  constexpr int step = access_width<T, width>;
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

inline constexpr unsigned whole_warp = 0xffffffffU;

/// The sum of `value` over the warp, in a fixed order, returned to all lanes.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(whole_warp, value, offset);
  }
  return value;
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(whole_warp, value, offset));
  }
  return value;
}

/// The sum of `value` over the block's threads, in a fixed order, returned to all threads. The
/// block must have whole warps, at most 32.
template <class T>
__device__ T block_sum(T value) {
  struct Sums;
  T* sums = static_shared<Sums, T, 32>();
  value = warp_sum(value);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (lane == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = warp_sum(lane < static_cast<int>(blockDim.x / 32) ? sums[lane] : T{0});
  __syncthreads();  // the next call overwrites `sums`
  return value;
}

/// The largest `value` of the block's threads, ignoring NaNs.
__device__ inline float block_max(float value) {
  struct Largest;
  float* largest = static_shared<Largest, float, 32>();
  value = warp_max(value);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (lane == 0) largest[threadIdx.x / 32] = value;
  __syncthreads();
  value = warp_max(largest[lane < static_cast<int>(blockDim.x / 32) ? lane : 0]);
  __syncthreads();
  return value;
}

/// The number of threads before this one with `counted`; `total` gets that of the block.
__device__ inline int block_rank(bool counted, int& total) {
  struct Counts;
  int* counts = static_shared<Counts, int, 32>();
  const unsigned votes = __ballot_sync(whole_warp, counted);
  const unsigned warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) counts[warp] = __popc(votes);
  __syncthreads();
  int before = __popc(votes & ((1U << threadIdx.x % 32) - 1U));
  total = 0;
  for (unsigned i = 0; i < blockDim.x / 32; ++i) {
    if (i < warp) before += counts[i];
    total += counts[i];
  }
  __syncthreads();  // the next call overwrites `counts`
  return before;
}

}  // namespace trainctl::cuda
