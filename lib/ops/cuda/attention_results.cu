// Operations on the results of attention: merging two sets of keys, and sinks.

#include "ops/attention.h"
#include "ops/cuda/attention_runs.cuh"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

// Merges attention over two sets of keys: one warp per query and head.

template <class T>
struct Merge {
  Runs queries;
  T* out;
  float* logsumexp;
  const T* other;
  const float* other_logsumexp;
  int query_length, heads, head_dim;
  std::int64_t count;  // number of statistics
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
  __syncwarp();  // all lanes have read the statistic
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

// Attention sinks: one warp per query and head. In backward, a block sums a strip of the queries of
// one head; the strips are then added in order.
namespace {

constexpr int block_warps = block_threads / 32;

template <class T>
struct SinkForward {
  Runs queries;
  const float* sinks;
  T* out;
  float* logsumexp;
  int query_length, heads, head_dim;
  std::int64_t count;  // number of statistics
};

template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    sink_forward_kernel(const __grid_constant__ SinkForward<T> args) {
  const std::int64_t statistic = grid_thread() / 32;
  if (statistic >= args.count) return;
  const float sink = args.sinks[statistic / args.query_length % args.heads];
  const float own = args.logsumexp[statistic];
  const std::int64_t start =
      elements_of(args.queries, statistic, args.query_length, args.heads, args.head_dim);
  const float factor = 1.0F / (1.0F + expf(sink - own));
  for (std::int64_t at = threadIdx.x % 32 * width; at < args.head_dim; at += 32 * width) {
    float x[width];
    load<width>(args.out + start + at, x);
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] *= factor;
    store<width>(args.out + start + at, x);
  }
  __syncwarp();  // all lanes have read the statistic
  const float highest = fmaxf(own, sink);
  if (threadIdx.x % 32 == 0) {
    args.logsumexp[statistic] = highest + logf(expf(own - highest) + expf(sink - highest));
  }
}

template <class T>
struct SinkBackward {
  Runs queries;
  const float* sinks;
  const T* out;
  const T* d_out;
  const float* logsumexp;
  float* strips;  // [strips, heads]
  int sequences, query_length, heads, head_dim;
};

/// Grid: x is the strip, y the head.
template <class T, int width>
__global__ void __launch_bounds__(block_threads)
    sink_backward_kernel(const __grid_constant__ SinkBackward<T> args) {
  struct Sums;
  float* sums = static_shared<Sums, float, block_warps>();
  const int head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t all = std::int64_t{args.sequences} * args.query_length;
  const std::int64_t end = all * (blockIdx.x + 1) / gridDim.x;
  const float sink = args.sinks[head];
  float sum = 0;
  for (std::int64_t at = all * blockIdx.x / gridDim.x + warp; at < end; at += block_warps) {
    const std::int64_t sequence = at / args.query_length;
    const std::int64_t statistic =
        (sequence * args.heads + head) * args.query_length + at % args.query_length;
    const std::int64_t start =
        elements_of(args.queries, statistic, args.query_length, args.heads, args.head_dim);
    float product = 0;
    for (std::int64_t i = threadIdx.x % 32 * width; i < args.head_dim; i += 32 * width) {
      float x[width];
      float y[width];
      load<width>(args.out + start + i, x);
      load<width>(args.d_out + start + i, y);
#pragma unroll
      for (int j = 0; j < width; ++j) product += x[j] * y[j];
    }
    sum += expf(sink - args.logsumexp[statistic]) * warp_sum(product);
  }
  if (threadIdx.x % 32 == 0) sums[warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (int i = 0; i < block_warps; ++i) total -= sums[i];
  args.strips[std::int64_t{blockIdx.x} * args.heads + head] = total;
}

}  // namespace

void attention_sink_forward(const OpContext& context, const AttentionSinkArgs& args) {
  const AttentionShape& shape = args.shape;
  with_element_type(args.out.dtype, [&](auto element) {
    using T = decltype(element);
    const SinkForward<T> all{Runs::of(shape.queries()),
                             args.sinks.elements<float>(),
                             args.out.elements<T>(),
                             args.logsumexp.elements<float>(),
                             static_cast<int>(shape.query_length),
                             static_cast<int>(shape.heads),
                             static_cast<int>(shape.head_dim),
                             args.logsumexp.numel()};
    const Grid grid{blocks_for(all.count, block_warps, 0x7fffffff), dim3(block_threads)};
    with_width<T>(shape.head_dim, {args.out.data}, [&](auto width) {
      launch(sink_forward_kernel<T, width()>, grid, stream_of(context), all);
    });
  });
}

void attention_sink_backward(const OpContext& context, const AttentionSinkArgs& args) {
  const AttentionShape& shape = args.shape;
  const std::int64_t strips =
      strips_for(shape.sequences * shape.query_length, shape.heads, 4 * block_warps);
  auto* sums = reinterpret_cast<float*>(context.scratch);
  with_element_type(args.out.dtype, [&](auto element) {
    using T = decltype(element);
    const SinkBackward<T> all{Runs::of(shape.queries()),
                              args.sinks.elements<float>(),
                              args.out.elements<T>(),
                              args.d_out.elements<T>(),
                              args.logsumexp.elements<float>(),
                              sums,
                              static_cast<int>(shape.sequences),
                              static_cast<int>(shape.query_length),
                              static_cast<int>(shape.heads),
                              static_cast<int>(shape.head_dim)};
    const Grid grid{dim3(static_cast<unsigned>(strips), static_cast<unsigned>(shape.heads)),
                    dim3(block_threads)};
    with_width<T>(shape.head_dim, {args.out.data, args.d_out.data}, [&](auto width) {
      launch(sink_backward_kernel<T, width()>, grid, stream_of(context), all);
    });
  });
  add_strips(context, sums, strips, shape.heads, args.d_sinks.elements<float>());
}

}  // namespace trainctl::cuda
