// Sums over rows, and sums over ranks that share a device.

#include <string>

#include "base/error.h"
#include "base/scratch.h"
#include "device/cuda_device.h"
#include "ops/cuda/enqueue.cuh"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

// Sums over rows in two steps: other kernels sum strips of rows, this one adds the strips.

/// A block has 32 columns, with 32 threads each. Blocks with y = 1 add to the second result.
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
  // From here on, each warp has one column.
  sum = warp_sum(parts[threadIdx.y * 33 + threadIdx.x]);
  if (threadIdx.x != 0 || begin + threadIdx.y >= columns) return;
  (blockIdx.y == 0 ? first : second)[begin + threadIdx.y] += sum;
}

}  // namespace

std::int64_t strips_for(std::int64_t rows, std::int64_t columns, std::int64_t min_rows) {
  constexpr std::int64_t most = 512;
  const std::int64_t row_bytes = columns * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t room = scratch_bytes_per_thread / row_bytes;
  require(room > 0, ExitCode::internal,
          "[cuda] sums over rows of " + std::to_string(columns) + " columns need " +
              std::to_string(row_bytes) + " bytes of scratch, there are " +
              std::to_string(scratch_bytes_per_thread));
  return std::min({(rows + min_rows - 1) / min_rows, most, room});
}

void add_strips(const OpContext& context, const float* strips, std::int64_t count,
                std::int64_t columns, float* first, float* second) {
  Grid grid{blocks_for(columns, 32, 0x7fffffff), dim3(32, 32)};
  grid.blocks.y = second != nullptr ? 2 : 1;
  launch(add_strips_kernel, grid, stream_of(context), strips, count, columns, first, second);
}

// Sums over ranks that share a device (CudaSum).
namespace {

template <class T>
struct RankSumWork {
  const T* parts[max_cuda_parts];
  int count;
  T* out;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float sum[width];
    float next[width];
    load<width>(parts[0] + at, sum);
    for (int part = 1; part < count; ++part) {
      load<width>(parts[part] + at, next);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += next[i];
    }
    store<width>(out + at, sum);
  }
};

void sum_in_rank_order(void* out, std::span<const void* const> parts, std::int64_t count,
                       DType dtype, Stream& stream) {
  with_element_type(dtype, [&](auto element) {
    using T = decltype(element);
    RankSumWork<T> work{};
    work.count = static_cast<int>(parts.size());
    work.out = static_cast<T*>(out);
    bool wide = all_aligned({out});
    for (std::size_t i = 0; i < parts.size(); ++i) {
      work.parts[i] = static_cast<const T*>(parts[i]);
      wide = wide && all_aligned({parts[i]});
    }
    for_elements<vector_width<T>>(OpContext{.stream = &stream}, count, wide, work);
  });
}

constexpr CudaSum sum = sum_in_rank_order;

}  // namespace
}  // namespace trainctl::cuda

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_sums() {
  return {&trainctl::cuda::sum, sizeof(trainctl::CudaSum)};
}
