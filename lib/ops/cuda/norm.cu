// LayerNorm and RMSNorm, which has no mean and bias. Forward: one warp per row. Backward: one block
// per strip of rows, eight rows at a time. Each warp computes the sums over one row; then each
// thread processes some columns of all eight rows, which are still in the caches, and adds to the
// strip's sums for the weights' gradients, in shared memory. The strips are then added in order.
// All sums are fp32 in a fixed order.
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"

namespace trainctl::cuda {
namespace {

constexpr int tile_rows = block_threads / 32;  // one warp per row
// The shared memory that a block may request on all devices of compute capability 8.0 and later.
constexpr std::int64_t max_shared_bytes = std::int64_t{96} << 10;

template <class T>
T* optional(const Tensor& tensor) {
  return tensor.empty() ? nullptr : tensor.elements<T>();
}

template <class T>
struct Forward {
  const T* x;
  const T* residual;
  T* sum;
  const float* weight;
  const float* bias;
  T* y;
  float* mean;
  float* rstd;
  std::int64_t rows, hidden;
  float epsilon;
  float x_factor;
  float offset;          // added to the weights
  const float* sums;     // sums over rows that ranks divide; may be null
  std::int64_t counted;  // features of a whole row on all ranks
};

/// Loads weights; without any, loads 0, and the offset is 1.
template <int width>
__device__ void load_weights(const float* weights, std::int64_t at, float (&to)[width]) {
  if (weights != nullptr) return load<width>(weights + at, to);
#pragma unroll
  for (int i = 0; i < width; ++i) to[i] = 0;
}
float offset_of(const Tensor& weight, bool zero_centered) {
  return weight.empty() ? 1.0F : weight_offset(zero_centered);
}

/// The sum of body(element) over a row, computed by a warp.
template <int width, class T, class Body>
__device__ float row_sum(const T* row, std::int64_t hidden, const Body& body) {
  float sum = 0;
  for (std::int64_t at = threadIdx.x % 32 * width; at < hidden; at += 32 * width) {
    float x[width];
    load<width>(row + at, x);
#pragma unroll
    for (int i = 0; i < width; ++i) sum += body(x[i]);
  }
  return warp_sum(sum);
}

struct Itself {
  __device__ float operator()(float x) const { return x; }
};
struct SquareFrom {
  float mean;
  __device__ float operator()(float x) const { return (x - mean) * (x - mean); }
};

/// sum = x_factor * x + residual for one row, rounded when stored.
template <int width, class T>
__device__ void add_residual(const Forward<T>& args, std::int64_t start) {
  for (std::int64_t at = threadIdx.x % 32 * width; at < args.hidden; at += 32 * width) {
    float x[width];
    float residual[width];
    load<width>(args.x + start + at, x);
    load<width>(args.residual + start + at, residual);
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] = args.x_factor * x[i] + residual[i];
    store<width>(args.sum + start + at, x);
  }
}

template <bool layer, class T, int width>
__global__ void __launch_bounds__(block_threads) norm_forward_kernel(Forward<T> args) {
  const std::int64_t row = std::int64_t{blockIdx.x} * tile_rows + threadIdx.x / 32;
  if (row >= args.rows) return;
  const std::int64_t start = row * args.hidden;
  // Lanes read only elements that they accessed before, so these are still in the caches.
  if (args.residual != nullptr) add_residual<width>(args, start);
  const T* source = (args.residual != nullptr ? args.sum : args.x) + start;
  const float count = static_cast<float>(args.hidden);
  const float mean = layer ? row_sum<width>(source, args.hidden, Itself{}) / count : 0.0F;
  const float variance = args.sums != nullptr
                             ? args.sums[row] / static_cast<float>(args.counted)
                             : row_sum<width>(source, args.hidden, SquareFrom{mean}) / count;
  const float rstd = 1.0F / sqrtf(variance + args.epsilon);
  if (threadIdx.x % 32 == 0) {
    if (layer) args.mean[row] = mean;
    args.rstd[row] = rstd;
  }
  for (std::int64_t at = threadIdx.x % 32 * width; at < args.hidden; at += 32 * width) {
    float x[width];
    float weight[width];
    float bias[width] = {};
    load<width>(source + at, x);
    load_weights<width>(args.weight, at, weight);
    if (layer) load<width>(args.bias + at, bias);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      x[i] = (x[i] - mean) * rstd * (weight[i] + args.offset) + bias[i];
    }
    store<width>(args.y + start + at, x);
  }
}

template <class T>
struct Backward {
  const T* dy;
  const T* x;
  const float* weight;
  const float* mean;
  const float* rstd;
  const T* d_residual;
  T* dx;
  float* strips;  // [strips, hidden] for the weight's gradient, then for the bias's
  std::int64_t rows, hidden;
  float offset;          // added to the weights
  bool sums_in_shared;   // the strip's sums fit into shared memory
  const float* sums;     // as in Forward
  std::int64_t counted;  // as in Forward
};

/// Sums over a row, needed for the gradients of its columns.
struct RowSums {
  float mean, rstd;
  float gradient;         // mean of dy weight
  float gradient_normal;  // mean of dy weight z
};

template <bool layer, class T, int width>
__device__ RowSums row_sums(const Backward<T>& args, std::int64_t row) {
  const std::int64_t start = row * args.hidden;
  RowSums sums{layer ? args.mean[row] : 0.0F, args.rstd[row], 0, 0};
  if (args.sums != nullptr) {
    sums.gradient_normal = args.sums[row] * sums.rstd / static_cast<float>(args.counted);
    return sums;
  }
  for (std::int64_t at = threadIdx.x % 32 * width; at < args.hidden; at += 32 * width) {
    float dy[width];
    float x[width];
    float weight[width];
    load<width>(args.dy + start + at, dy);
    load<width>(args.x + start + at, x);
    load_weights<width>(args.weight, at, weight);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float g = dy[i] * (weight[i] + args.offset);
      if (layer) sums.gradient += g;
      sums.gradient_normal += g * (x[i] - sums.mean);
    }
  }
  const float count = static_cast<float>(args.hidden);
  if (layer) sums.gradient = warp_sum(sums.gradient) / count;
  sums.gradient_normal = warp_sum(sums.gradient_normal) * sums.rstd / count;
  return sums;
}

/// Computes `width` columns of a tile's rows: dx, and contributions to the weights' gradients. dx
/// may share memory with dy or d_residual, because a thread reads each element before it writes it.
template <bool layer, class T, int width>
__device__ void tile_columns(const Backward<T>& args, std::int64_t first_row, int rows,
                             std::int64_t at, const RowSums* sums, float* dweight, float* dbias) {
  float weight[width];
  float weight_sum[width] = {};
  float bias_sum[width] = {};
  load_weights<width>(args.weight, at, weight);
  for (int row = 0; row < rows; ++row) {
    const std::int64_t place = (first_row + row) * args.hidden + at;
    const RowSums of = sums[row];
    float dy[width];
    float x[width];
    float dx[width] = {};
    load<width>(args.dy + place, dy);
    load<width>(args.x + place, x);
    if (args.d_residual != nullptr) load<width>(args.d_residual + place, dx);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float z = (x[i] - of.mean) * of.rstd;
      const float g = dy[i] * (weight[i] + args.offset);
      dx[i] += of.rstd * (g - of.gradient - z * of.gradient_normal);
      weight_sum[i] += dy[i] * z;
      if (layer) bias_sum[i] += dy[i];
    }
    store<width>(args.dx + place, dx);
  }
#pragma unroll
  for (int i = 0; i < width; ++i) {
    dweight[at + i] += weight_sum[i];
    if (layer) dbias[at + i] += bias_sum[i];
  }
}

template <bool layer, class T, int width>
__global__ void __launch_bounds__(block_threads) norm_backward_kernel(Backward<T> args) {
  struct Sums;
  RowSums* sums = static_shared<Sums, RowSums, tile_rows>();
  const std::int64_t strip = blockIdx.x;
  const std::int64_t strips = gridDim.x;
  float* strip_weight = args.strips + strip * args.hidden;
  float* strip_bias = args.strips + (strips + strip) * args.hidden;
  float* dweight = args.sums_in_shared ? dynamic_shared<float>() : strip_weight;
  float* dbias = args.sums_in_shared ? dweight + args.hidden : strip_bias;
  // A thread has the same columns in all rows, so no other thread accesses their sums.
  const std::int64_t first = std::int64_t{threadIdx.x} * width;
  const std::int64_t stride = std::int64_t{block_threads} * width;
  for (std::int64_t at = first; at < args.hidden; at += stride) {
    for (int i = 0; i < width; ++i) {
      dweight[at + i] = 0;
      if (layer) dbias[at + i] = 0;
    }
  }
  const std::int64_t end = args.rows * (strip + 1) / strips;
  for (std::int64_t row = args.rows * strip / strips; row < end; row += tile_rows) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int rows = static_cast<int>(min(std::int64_t{tile_rows}, end - row));
    if (warp < rows) {
      const RowSums mine = row_sums<layer, T, width>(args, row + warp);
      if (threadIdx.x % 32 == 0) sums[warp] = mine;
    }
    __syncthreads();
    for (std::int64_t at = first; at < args.hidden; at += stride) {
      tile_columns<layer, T, width>(args, row, rows, at, sums, dweight, dbias);
    }
    __syncthreads();  // the next tile overwrites `sums`
  }
  if (!args.sums_in_shared) return;
  for (std::int64_t at = first; at < args.hidden; at += stride) {
    for (int i = 0; i < width; ++i) {
      strip_weight[at + i] = dweight[at + i];
      if (layer) strip_bias[at + i] = dbias[at + i];
    }
  }
}

template <class T>
struct SumsOfRows {
  const T* x;
  const T* dy;
  const float* weight;
  float* sums;
  std::int64_t rows, hidden;
  float offset;
};

template <class T, int width>
__global__ void __launch_bounds__(block_threads) norm_sums_kernel(SumsOfRows<T> args) {
  const std::int64_t row = std::int64_t{blockIdx.x} * tile_rows + threadIdx.x / 32;
  if (row >= args.rows) return;
  const std::int64_t start = row * args.hidden;
  float sum = 0;
  for (std::int64_t at = threadIdx.x % 32 * width; at < args.hidden; at += 32 * width) {
    float x[width];
    load<width>(args.x + start + at, x);
    if (args.dy == nullptr) {
#pragma unroll
      for (int i = 0; i < width; ++i) sum += x[i] * x[i];
      continue;
    }
    float dy[width];
    float weight[width];
    load<width>(args.dy + start + at, dy);
    load<width>(args.weight + at, weight);
#pragma unroll
    for (int i = 0; i < width; ++i) sum += dy[i] * (weight[i] + args.offset) * x[i];
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) args.sums[row] = sum;
}

template <bool layer, class T>
void run_forward(const OpContext& context, const Forward<T>& args) {
  const Grid grid{blocks_for(args.rows, tile_rows, 0x7fffffff), dim3(block_threads)};
  with_width<T>(args.hidden, {args.x, args.residual, args.sum, args.weight, args.bias, args.y},
                [&](auto width) {
                  launch(norm_forward_kernel<layer, T, width()>, grid, stream_of(context), args);
                });
}

template <bool layer, class T>
void run_backward(const OpContext& context, Backward<T> args, float* dweight, float* dbias) {
  const std::int64_t kinds = layer ? 2 : 1;  // kinds of sums
  const std::int64_t strips = strips_for(args.rows, kinds * args.hidden, tile_rows);
  const std::int64_t sum_bytes = kinds * args.hidden * static_cast<std::int64_t>(sizeof(float));
  args.strips = reinterpret_cast<float*>(context.scratch);
  args.sums_in_shared = sum_bytes <= max_shared_bytes;
  const Grid grid{dim3(static_cast<unsigned>(strips)), dim3(block_threads),
                  args.sums_in_shared ? static_cast<std::size_t>(sum_bytes) : 0};
  with_width<T>(args.hidden, {args.dy, args.x, args.weight, args.dx, args.d_residual},
                [&](auto width) {
                  launch(norm_backward_kernel<layer, T, width()>, grid, stream_of(context), args);
                });
  if (dweight != nullptr) add_strips(context, args.strips, strips, args.hidden, dweight, dbias);
}

}  // namespace

void norm_forward(const OpContext& context, const NormForward& args) {
  if (args.x.numel() == 0) return;
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const Forward<T> rows{args.x.elements<T>(),
                          optional<T>(args.residual),
                          optional<T>(args.sum),
                          optional<float>(args.weight),
                          optional<float>(args.bias),
                          args.y.elements<T>(),
                          optional<float>(args.mean),
                          args.rstd.elements<float>(),
                          args.x.rows(),
                          args.x.columns(),
                          args.epsilon,
                          args.x_factor,
                          offset_of(args.weight, args.zero_centered),
                          optional<float>(args.sums),
                          args.features};
    args.kind == NormKind::layer_norm ? run_forward<true, T>(context, rows)
                                      : run_forward<false, T>(context, rows);
  });
}

void norm_backward(const OpContext& context, const NormBackward& args) {
  if (args.x.numel() == 0) return;
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const Backward<T> rows{args.dy.elements<T>(),
                           args.x.elements<T>(),
                           optional<float>(args.weight),
                           optional<float>(args.mean),
                           args.rstd.elements<float>(),
                           optional<T>(args.d_residual),
                           args.dx.elements<T>(),
                           nullptr,
                           args.x.rows(),
                           args.x.columns(),
                           offset_of(args.weight, args.zero_centered),
                           false,
                           optional<float>(args.sums),
                           args.features};
    float* dweight = optional<float>(args.dweight);
    args.kind == NormKind::layer_norm
        ? run_backward<true, T>(context, rows, dweight, args.dbias.elements<float>())
        : run_backward<false, T>(context, rows, dweight, nullptr);
  });
}

void norm_sums(const OpContext& context, const NormSums& args) {
  if (args.x.numel() == 0) return;
  with_element_type(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const SumsOfRows<T> rows{args.x.elements<T>(),
                             optional<T>(args.dy),
                             optional<float>(args.weight),
                             args.sums.elements<float>(),
                             args.x.rows(),
                             args.x.columns(),
                             weight_offset(args.zero_centered)};
    const Grid grid{blocks_for(rows.rows, tile_rows, 0x7fffffff), dim3(block_threads)};
    with_width<T>(rows.hidden, {rows.x, rows.dy, rows.weight}, [&](auto width) {
      launch(norm_sums_kernel<T, width()>, grid, stream_of(context), rows);
    });
  });
}

}  // namespace trainctl::cuda
