// Joins attention over two sets of keys: a warp takes one head of one query.
#include "ops/attention_merge.h"

#include "ops/cuda/attention_runs.cuh"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

template <class T>
struct Merge {
  Runs queries;
  T* out;
  float* logsumexp;
  const T* other;
  const float* other_logsumexp;
  int query_length, heads, head_dim;
  std::int64_t count;  // of statistics
};

template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    merge_kernel(const __grid_constant__ Merge<T> args) {
  const std::int64_t statistic = grid_thread() / 32;
  if (statistic >= args.count) return;
  const float added_log = args.other_logsumexp[statistic];
  if (isinf(added_log)) return;
  const float own_log = args.logsumexp[statistic];
  const std::int64_t start =
      elements_of(args.queries, statistic, args.query_length, args.heads, args.head_dim);
  const float highest = fmaxf(own_log, added_log);
  const float own = expf(own_log - highest);
  const float added = expf(added_log - highest);
  const float scale = 1.0F / (own + added);
  for (std::int64_t at = threadIdx.x % 32 * width; at < args.head_dim; at += 32 * width) {
    float x[width];
    float y[width];
    load<width>(args.out + start + at, x);
    load<width>(args.other + start + at, y);
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] = (own * x[i] + added * y[i]) * scale;
    store<width>(args.out + start + at, x);
  }
  __syncwarp();  // all have read the statistic
  if (threadIdx.x % 32 == 0) args.logsumexp[statistic] = highest + logf(own + added);
}

}  // namespace

void attention_merge(const OpContext& context, const AttentionMerge& args) {
  const AttentionShape& shape = args.shape;
  with_element_type(args.out.dtype, [&](auto element) {
    using T = decltype(element);
    const Merge<T> all{Runs::of(shape.queries()),
                       args.out.elements<T>(),
                       args.logsumexp.elements<float>(),
                       args.other.elements<T>(),
                       args.other_logsumexp.elements<float>(),
                       static_cast<int>(shape.query_length),
                       static_cast<int>(shape.heads),
                       static_cast<int>(shape.head_dim),
                       args.logsumexp.numel()};
    const Grid grid{blocks_for(all.count, block_threads / 32, 0x7fffffff), dim3(block_threads)};
    with_width<T>(shape.head_dim, {args.out.data, args.other.data}, [&](auto width) {
      launch(merge_kernel<T, width()>, grid, stream_of(context), all);
    });
  });
}

}  // namespace trainctl::cuda
