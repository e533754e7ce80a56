// Values that are stored in bf16, rounded at random (ops/random_rounding.h), or in fp32.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "ops/cuda/device_math.cuh"
#include "ops/random_rounding.h"

namespace trainctl::cuda {

/// The random words of elements [at, at + width) of a part: those of four elements are made at once
/// where they lie together in the whole tensor.
template <int width>
__device__ void random_words(const Philox& philox, const RandomRounding& rounding, std::int64_t at,
                             std::uint32_t (&words)[width]) {
  const std::uint64_t whole = rounding.whole(at);
  if (width == 4 && whole % 4 == 0 && rounding.whole(at + width - 1) == whole + width - 1) {
    const auto block = philox.block(whole / 4);
#pragma unroll
    for (int i = 0; i < width; ++i) words[i] = block[static_cast<std::size_t>(i)];
    return;
  }
#pragma unroll
  for (int i = 0; i < width; ++i) words[i] = philox.bits(rounding.whole(at + i));
}

/// Of values in bf16, rounded at random; fp32 is stored as it is.
template <int width>
__device__ void store_at_random(float* to, const float (&values)[width],
                                const std::uint32_t (&)[width], int) {
  store<width>(to, values);
}
template <int width>
__device__ void store_at_random(bf16* to, const float (&values)[width],
                                const std::uint32_t (&random)[width], int shift) {
  struct alignas(width * sizeof(bf16)) Chunk {
    bf16 at[width];
  } chunk;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    chunk.at[i].bits = round_bits(__float_as_uint(values[i]), random[i] >> shift);
  }
  *reinterpret_cast<Chunk*>(to) = chunk;
}

/// The same of a parameter: fp32, or bf16 with random words of its own.
template <int width>
__device__ void store_weight(float* to, const float (&values)[width], std::int64_t at,
                             const Philox&, const RandomRounding&) {
  store<width>(global_pointer(to) + at, values);
}
template <int width>
__device__ void store_weight(bf16* to, const float (&values)[width], std::int64_t at,
                             const Philox& philox, const RandomRounding& rounding) {
  std::uint32_t words[width];
  random_words<width>(philox, rounding, at, words);
  store_at_random<width>(global_pointer(to) + at, values, words, 0);
}

}  // namespace trainctl::cuda
