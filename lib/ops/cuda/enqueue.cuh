// Launches of kernels over elements and rows: grid sizes, stream, and packs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "ops/context.h"
#include "ops/cuda/device_math.cuh"

namespace trainctl::cuda {

/// Threads per block, and blocks enough to fill any device several times; threads loop over more.
inline constexpr int block_threads = 256;
inline constexpr std::int64_t max_blocks = 8192;

inline cudaStream_t stream_of(const OpContext& context) {
  return static_cast<cudaStream_t>(context.stream->native());
}

/// Enough blocks for `work` pieces, `per_block` pieces per block; at least 1, at most `most`.
inline dim3 blocks_for(std::int64_t work, std::int64_t per_block, std::int64_t most = max_blocks) {
  const std::int64_t blocks = (work + per_block - 1) / per_block;
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, most)));
}

/// A grid for kernels with one thread per token: small blocks, because a batch has too few tokens
/// to fill all multiprocessors with large blocks.
inline Grid token_grid(std::int64_t tokens) {
  constexpr int threads = 64;
  return {blocks_for(tokens, threads, 0x7fffffff), dim3(threads)};
}

/// Whether rows of `columns` elements are whole packs of 16 bytes, with all operands aligned.
template <class T>
bool whole_packs(std::int64_t columns, std::initializer_list<const void*> operands) {
  return columns % vector_width<T> == 0 && all_aligned(operands);
}
/// Calls run() with the elements per pack as a constant: those of 16 bytes if possible, else 1.
template <class T, class Run>
void with_width(std::int64_t columns, std::initializer_list<const void*> operands, const Run& run) {
  if (whole_packs<T>(columns, operands)) {
    run(std::integral_constant<int, vector_width<T>>());
  } else {
    run(std::integral_constant<int, 1>());
  }
}

/// The index of the calling thread in a one-dimensional grid, and the number of threads.
__device__ inline std::int64_t grid_thread() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t grid_threads() { return std::int64_t{gridDim.x} * blockDim.x; }

template <int width, class Work>
__global__ void __launch_bounds__(block_threads) elements_kernel(Work work, std::int64_t count) {
  const std::int64_t whole = count / width;
  for (std::int64_t pack = grid_thread(); pack < whole; pack += grid_threads()) {
    work.template run<width>(pack * width);
  }
  const std::int64_t rest = whole * width + grid_thread();
  if (rest < count) work.template run<1>(rest);
}

/// Enqueues work.run<width>(at) for elements [at, at + width), until all `count` are covered: in
/// packs of `width` if `wide` (all operands are aligned), else one at a time. `run` must read
/// elements before it overwrites them.
template <int width, class Work>
void for_elements(const OpContext& context, std::int64_t count, bool wide, const Work& work) {
  if (count == 0) return;
  const std::int64_t packs = wide ? (count + width - 1) / width : count;
  const Grid grid{blocks_for(packs, block_threads), dim3(block_threads)};
  if (wide) {
    launch(elements_kernel<width, Work>, grid, stream_of(context), work, count);
  } else {
    launch(elements_kernel<1, Work>, grid, stream_of(context), work, count);
  }
}

/// The number of strips for a sum over rows. Partial sums [strips, columns] are in scratch and are
/// then added in order. A strip has at least `min_rows` rows. The number depends only on the
/// extents, so that results are the same on all devices.
std::int64_t strips_for(std::int64_t rows, std::int64_t columns, std::int64_t min_rows);
/// first[column] += the sum of `count` strips, in a fixed order. If `second` is given, it gets the
/// sum of the next `count` strips.
void add_strips(const OpContext& context, const float* strips, std::int64_t count,
                std::int64_t columns, float* first, float* second = nullptr);

}  // namespace trainctl::cuda
