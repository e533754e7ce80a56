// How kernels over elements and rows are cut into threads, and where they run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "ops/context.h"
#include "ops/cuda/device_math.cuh"

namespace trainctl::cuda {

/// Threads of a block, and blocks that fill any device several times: more work is taken in turns.
inline constexpr int block_threads = 256;
inline constexpr std::int64_t max_blocks = 8192;

inline cudaStream_t stream_of(const OpContext& context) {
  return static_cast<cudaStream_t>(context.stream->native());
}

/// Blocks of `per_block` pieces of work each, at least one.
inline dim3 blocks_for(std::int64_t work, std::int64_t per_block, std::int64_t most = max_blocks) {
  const std::int64_t blocks = (work + per_block - 1) / per_block;
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, most)));
}

/// For kernels in which a thread takes a whole token: small blocks, since a batch has too few of
/// them to fill all multiprocessors with large ones.
inline Grid token_grid(std::int64_t tokens) {
  constexpr int threads = 64;
  return {blocks_for(tokens, threads, 0x7fffffff), dim3(threads)};
}

/// Whether rows of `columns` elements are packs of 16 bytes, and all operands are aligned for them.
template <class T>
bool whole_packs(std::int64_t columns, std::initializer_list<const void*> operands) {
  return columns % vector_width<T> == 0 && all_aligned(operands);
}
/// run(width) with the elements of such a pack, or 1, as a constant.
template <class T, class Run>
void with_width(std::int64_t columns, std::initializer_list<const void*> operands, const Run& run) {
  if (whole_packs<T>(columns, operands)) {
    run(std::integral_constant<int, vector_width<T>>());
  } else {
    run(std::integral_constant<int, 1>());
  }
}

/// The calling thread's number in the grid, and how many there are; grids and blocks are rows.
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

/// Enqueues work.run<width>(at) for elements [at, at + width) until all `count` are covered: packs
/// of `width` where `wide` says that all operands are aligned, else one at a time. `run` reads what
/// it overwrites first.
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

/// Rows of partial sums that are added to a result in their order: [strips, columns] in scratch.
/// A strip has at least `min_rows` rows. The number of strips depends on the extents only, so
/// that results do not change with the device.
std::int64_t strips_for(std::int64_t rows, std::int64_t columns, std::int64_t min_rows);
/// first[column] += the sum of the strips, in a fixed order; second, where there is one, gets the
/// sum of the next `count` strips.
void add_strips(const OpContext& context, const float* strips, std::int64_t count,
                std::int64_t columns, float* first, float* second = nullptr);

}  // namespace trainctl::cuda
