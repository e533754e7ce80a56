// Sums over ranks that share a device (CudaSums).
#include "device/cuda_device.h"
#include "ops/cuda/enqueue.cuh"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

template <class T>
struct RankSumWork {
  const T* parts[CudaSums::most_parts];
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

constexpr CudaSums sums{.in_rank_order = sum_in_rank_order};

}  // namespace
}  // namespace trainctl::cuda

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_sums() {
  return {&trainctl::cuda::sums, sizeof(trainctl::CudaSums)};
}
