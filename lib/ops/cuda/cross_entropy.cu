// Cross-entropy over chunks of logits, one block per row. Exponentials are of fp32 differences to
// the row's largest logit. One block sums the loss in double, in the order of the rows.
#include "ops/cross_entropy.h"

#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

constexpr float minus_infinity = -INFINITY;

/// z of a stored logit (LogitForm); slope_of is dz of z.
__device__ float formed(const LogitForm& form, float x) {
  const float z = form.scale * x;
  return form.cap > 0 ? form.cap * tanhf(z / form.cap) : z;
}
__device__ float slope_of(const LogitForm& form, float z) {
  const float part = form.cap > 0 ? z / form.cap : 0.0F;
  return form.scale * (1 - part * part);
}

template <class T>
struct Rows {
  T* logits;
  const std::int32_t* labels;
  std::int64_t first_column, columns, valid;
  float* row_max;
  float* row_sum;
  float* target;
  const float* weight;     // null in the first pass
  const StepState* state;  // null in the first pass
  LogitForm form;
};

template <class T>
Rows<T> rows_of(const CrossEntropyArgs& args) {
  return {args.logits.elements<T>(),
          args.labels.elements<std::int32_t>(),
          args.first_column,
          args.logits.columns(),
          args.valid,
          args.row_max.elements<float>(),
          args.row_sum.elements<float>(),
          args.target.elements<float>(),
          static_cast<const float*>(args.weight.data),
          args.state,
          args.form};
}

/// The largest logit so far, and the sum of exp(logit - largest), which is 0 if all are -infinity.
struct Running {
  float highest = minus_infinity;
  float sum = 0;

  __device__ void add(float logit) {
    if (logit == minus_infinity) return;
    if (logit > highest) {
      sum *= expf(highest - logit);
      highest = logit;
    }
    sum += expf(logit - highest);  // NaN for a NaN
  }
};

template <class T, int width>
__global__ void __launch_bounds__(block_threads) stats_kernel(Rows<T> args) {
  const std::int64_t row = blockIdx.x;
  const T* logits = args.logits + row * args.columns;
  Running mine;
  for (std::int64_t at = std::int64_t{threadIdx.x} * width; at < args.valid;
       at += std::int64_t{block_threads} * width) {
    float x[width];
    load<width>(logits + at, x);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (at + i < args.valid) mine.add(formed(args.form, x[i]));
    }
  }
  const float highest = block_max(mine.highest);
  const float sum = block_sum(mine.sum != 0 ? mine.sum * expf(mine.highest - highest) : 0.0F);
  if (threadIdx.x != 0) return;
  const std::int64_t label = args.labels[row] - args.first_column;
  args.row_max[row] = highest;
  args.row_sum[row] = sum;
  const bool here = label >= 0 && label < args.valid;
  args.target[row] = here ? formed(args.form, widen(logits[label])) : 0.0F;
}

__global__ void __launch_bounds__(block_threads)
    combine_kernel(const float* shards, std::int64_t ranks, std::int64_t rows, float* whole) {
  const std::int64_t row = grid_thread();
  if (row >= rows) return;
  float highest = minus_infinity;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    highest = fmaxf(highest, shards[rank * 3 * rows + row]);
  }
  float sum = 0;
  float target = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const float* shard = shards + rank * 3 * rows + row;
    // Skips a shard without finite logits; otherwise two infinities would give NaN.
    if (shard[rows] != 0) sum += shard[rows] * expf(shard[0] - highest);
    target += shard[2 * rows];
  }
  whole[row] = highest;
  whole[rows + row] = sum;
  whole[2 * rows + row] = target;
}

template <class T, int width>
__global__ void __launch_bounds__(block_threads) gradient_kernel(Rows<T> args) {
  const std::int64_t row = blockIdx.x;
  T* logits = args.logits + row * args.columns;
  const float weight = args.weight[row];
  const float scale = static_cast<float>(static_cast<double>(weight) * args.state->loss_factor *
                                         args.state->loss_scale);
  const float highest = args.row_max[row];
  const float part = 1.0F / args.row_sum[row];
  const std::int64_t label = args.labels[row] - args.first_column;
  for (std::int64_t at = std::int64_t{threadIdx.x} * width; at < args.columns;
       at += std::int64_t{block_threads} * width) {
    float x[width];
    load<width>(logits + at, x);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const bool real = at + i < args.valid && weight != 0;
      const float z = formed(args.form, x[i]);
      const float chance = real ? expf(z - highest) * part : 0.0F;
      const float gradient = (chance - (at + i == label ? 1.0F : 0.0F)) * scale;
      x[i] = real ? gradient * slope_of(args.form, z) : 0.0F;
    }
    store<width>(logits + at, x);
  }
}

/// loss_sum += sum of weight (log sum exp - target). Runs as a single block.
__global__ void __launch_bounds__(block_threads)
    loss_kernel(const float* row_max, const float* row_sum, const float* target,
                const float* weight, std::int64_t rows, StepState* state) {
  double sum = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += block_threads) {
    if (weight[row] == 0) continue;
    const double log_sum = row_max[row] + log(static_cast<double>(row_sum[row]));
    sum += weight[row] * (log_sum - target[row]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) state->loss_sum += sum;
}

}  // namespace

void cross_entropy_stats(const OpContext& context, const CrossEntropyArgs& args) {
  if (args.logits.rows() == 0) return;
  with_element_type(args.logits.dtype, [&](auto element) {
    using T = decltype(element);
    const Rows<T> all = rows_of<T>(args);
    const Grid grid{dim3(static_cast<unsigned>(args.logits.rows())), dim3(block_threads)};
    with_width<T>(all.columns, {args.logits.data}, [&](auto width) {
      launch(stats_kernel<T, width()>, grid, stream_of(context), all);
    });
  });
}

void cross_entropy_combine(const OpContext& context, const CrossEntropyCombine& args) {
  const std::int64_t rows = args.shards.shape[2];
  if (rows == 0) return;
  launch(combine_kernel, {blocks_for(rows, block_threads, 0x7fffffff), dim3(block_threads)},
         stream_of(context), args.shards.elements<float>(), args.shards.shape[0], rows,
         args.whole.elements<float>());
}

void cross_entropy_gradient(const OpContext& context, const CrossEntropyArgs& args) {
  const std::int64_t rows = args.logits.rows();
  if (rows == 0) return;
  if (args.owns_loss) {
    launch(loss_kernel, {dim3(1), dim3(block_threads)}, stream_of(context),
           args.row_max.elements<float>(), args.row_sum.elements<float>(),
           args.target.elements<float>(), args.weight.elements<float>(), rows, args.state);
  }
  if (args.forward_only) return;
  with_element_type(args.logits.dtype, [&](auto element) {
    using T = decltype(element);
    const Rows<T> all = rows_of<T>(args);
    const Grid grid{dim3(static_cast<unsigned>(rows)), dim3(block_threads)};
    with_width<T>(all.columns, {args.logits.data}, [&](auto width) {
      launch(gradient_kernel<T, width()>, grid, stream_of(context), all);
    });
  });
}

}  // namespace trainctl::cuda
