// Sums over rows in two steps: strips of rows by other kernels, then the strips here.
#include <string>

#include "base/error.h"
#include "base/scratch.h"
#include "ops/cuda/enqueue.cuh"

namespace trainctl::cuda {
namespace {

/// 32 columns per block, 32 threads to a column; blocks of the second row take the second result.
__global__ void __launch_bounds__(1024)
    add_strips_kernel(const float* strips, std::int64_t count, std::int64_t columns, float* first,
                      float* second) {
  struct Parts;
  float* parts = static_shared<Parts, float, 32 * 33>();
  const std::int64_t begin = std::int64_t{blockIdx.x} * 32;
  const std::int64_t column = begin + threadIdx.x;
  strips += blockIdx.y * count * columns;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (std::int64_t strip = threadIdx.y; strip < count; strip += 32) {
      sum += strips[strip * columns + column];
    }
  }
  parts[threadIdx.x * 33 + threadIdx.y] = sum;
  __syncthreads();
  // Now a warp takes a column.
  sum = warp_sum(parts[threadIdx.y * 33 + threadIdx.x]);
  if (threadIdx.x != 0 || begin + threadIdx.y >= columns) return;
  (blockIdx.y == 0 ? first : second)[begin + threadIdx.y] += sum;
}

}  // namespace

std::int64_t strips_for(std::int64_t rows, std::int64_t columns, std::int64_t least_rows) {
  constexpr std::int64_t most = 512;
  const std::int64_t row_bytes = columns * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t room = scratch_bytes_per_thread / row_bytes;
  require(room > 0, ExitCode::internal,
          "[cuda] sums over rows of " + std::to_string(columns) + " columns need " +
              std::to_string(row_bytes) + " bytes of scratch, there are " +
              std::to_string(scratch_bytes_per_thread));
  return std::min({(rows + least_rows - 1) / least_rows, most, room});
}

void add_strips(const OpContext& context, const float* strips, std::int64_t count,
                std::int64_t columns, float* first, float* second) {
  Grid grid{blocks_for(columns, 32, 0x7fffffff), dim3(32, 32)};
  grid.blocks.y = second != nullptr ? 2 : 1;
  launch(add_strips_kernel, grid, stream_of(context), strips, count, columns, first, second);
}

}  // namespace trainctl::cuda
