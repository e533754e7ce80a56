// Sums over rows in two steps: strips of rows by other kernels, then the strips here.
#include <string>

#include "base/error.h"
#include "base/scratch.h"
#include "ops/cuda/enqueue.cuh"

namespace trainctl::cuda {
namespace {

/// 32 columns per block, eight threads to a column.
__global__ void __launch_bounds__(256) add_strips_kernel(const float* strips, std::int64_t count,
                                                         std::int64_t columns, float* result) {
  struct Parts;
  float* parts = static_shared<Parts, float, 256>();
  const std::int64_t column = std::int64_t{blockIdx.x} * 32 + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (std::int64_t strip = threadIdx.y; strip < count; strip += 8) {
      sum += strips[strip * columns + column];
    }
  }
  parts[threadIdx.y * 32 + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int part = 1; part < 8; ++part) sum += parts[part * 32 + threadIdx.x];
  result[column] += sum;
}

}  // namespace

std::int64_t strips_for(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t most = 512;
  constexpr std::int64_t least_rows = 8;  // of a strip
  const std::int64_t row_bytes = columns * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t room = scratch_bytes_per_thread / row_bytes;
  require(room > 0, ExitCode::internal,
          "[cuda] sums over rows of " + std::to_string(columns) + " columns need " +
              std::to_string(row_bytes) + " bytes of scratch, there are " +
              std::to_string(scratch_bytes_per_thread));
  return std::min({(rows + least_rows - 1) / least_rows, most, room});
}

void add_strips(const OpContext& context, const float* strips, std::int64_t count,
                std::int64_t columns, float* result) {
  launch(add_strips_kernel, {blocks_for(columns, 32, 0x7fffffff), dim3(32, 8)}, stream_of(context),
         strips, count, columns, result);
}

}  // namespace trainctl::cuda
