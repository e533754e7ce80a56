// One block per row forward. Backward, a block takes a strip of rows and keeps the strip's part of
// the weight gradient, one column per thread at a time; a second kernel adds the strips in order.
// Sums are fp32 and have a fixed order, so the result does not change from run to run.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "device/cuda_check.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/kernels.h"

namespace trainctl::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t most_strips = 512;
// Shared memory of a block without asking for more, less what block_sum takes.
constexpr std::int64_t most_shared_bytes = (48 << 10) - 256;

template <class T>
struct Forward {
  const T* x;
  const T* residual;
  T* sum;
  const float* weight;
  T* y;
  float* rstd;
  std::int64_t hidden;
  float epsilon;
};

template <class T, int width>
__global__ void __launch_bounds__(threads) forward_kernel(Forward<T> args) {
  const std::int64_t start = std::int64_t{blockIdx.x} * args.hidden;
  const std::int64_t first = std::int64_t{threadIdx.x} * width;
  const std::int64_t stride = std::int64_t{blockDim.x} * width;
  float squares = 0;
  for (std::int64_t at = first; at < args.hidden; at += stride) {
    float x[width];
    load<width>(args.x + start + at, x);
    if (args.residual != nullptr) {
      float residual[width];
      load<width>(args.residual + start + at, residual);
#pragma unroll
      for (int i = 0; i < width; ++i) x[i] = widen(narrow<T>(x[i] + residual[i]));
      store<width>(args.sum + start + at, x);
    }
#pragma unroll
    for (int i = 0; i < width; ++i) squares += x[i] * x[i];
  }
  const float mean = block_sum(squares) / static_cast<float>(args.hidden);
  const float rstd = 1.0F / sqrtf(mean + args.epsilon);
  if (threadIdx.x == 0) args.rstd[blockIdx.x] = rstd;

  // Each thread reads again what it read or wrote above: from the caches, mostly.
  const T* source = args.residual != nullptr ? args.sum : args.x;
  for (std::int64_t at = first; at < args.hidden; at += stride) {
    float x[width];
    float weight[width];
    load<width>(source + start + at, x);
    load<width>(args.weight + at, weight);
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] *= rstd * weight[i];
    store<width>(args.y + start + at, x);
  }
}

template <class T>
struct Backward {
  const T* dy;
  const T* x;
  const float* weight;
  const float* rstd;
  const T* d_residual;
  T* dx;
  float* strips;  // [strips, hidden]: each strip's part of the weight gradient
  std::int64_t rows, hidden;
  bool keep_in_shared;  // the strip's part fits into shared memory
};

/// Writes one row's dx and adds its part of the weight gradient to `sums`. dx may be dy or
/// d_residual: each element is read before it is written, by the same thread.
template <class T, int width>
__device__ void backward_row(const Backward<T>& args, std::int64_t row, float* sums) {
  const std::int64_t start = row * args.hidden;
  const std::int64_t first = std::int64_t{threadIdx.x} * width;
  const std::int64_t stride = std::int64_t{blockDim.x} * width;
  float dy[width];
  float x[width];
  float weight[width];
  float product = 0;
  for (std::int64_t at = first; at < args.hidden; at += stride) {
    load<width>(args.dy + start + at, dy);
    load<width>(args.x + start + at, x);
    load<width>(args.weight + at, weight);
#pragma unroll
    for (int i = 0; i < width; ++i) product += dy[i] * weight[i] * x[i];
  }
  const float rstd = args.rstd[row];
  const float mean = block_sum(product) * rstd / static_cast<float>(args.hidden);
  for (std::int64_t at = first; at < args.hidden; at += stride) {
    load<width>(args.dy + start + at, dy);
    load<width>(args.x + start + at, x);
    load<width>(args.weight + at, weight);
    float dx[width] = {};
    if (args.d_residual != nullptr) load<width>(args.d_residual + start + at, dx);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float normal = x[i] * rstd;
      dx[i] += rstd * (dy[i] * weight[i] - normal * mean);
      sums[at + i] += dy[i] * normal;
    }
    store<width>(args.dx + start + at, dx);
  }
}

template <class T, int width>
__global__ void __launch_bounds__(threads) backward_kernel(Backward<T> args) {
  extern __shared__ float shared_sums[];
  const std::int64_t strip = blockIdx.x;
  float* mine = args.strips + strip * args.hidden;
  float* sums = args.keep_in_shared ? shared_sums : mine;
  const std::int64_t first = std::int64_t{threadIdx.x} * width;
  const std::int64_t stride = std::int64_t{blockDim.x} * width;
  // A thread has the same columns in every row: no other touches its sums.
  for (std::int64_t at = first; at < args.hidden; at += stride) {
    for (int i = 0; i < width; ++i) sums[at + i] = 0;
  }
  const std::int64_t end = args.rows * (strip + 1) / gridDim.x;
  for (std::int64_t row = args.rows * strip / gridDim.x; row < end; ++row) {
    backward_row<T, width>(args, row, sums);
  }
  if (!args.keep_in_shared) return;
  for (std::int64_t at = first; at < args.hidden; at += stride) {
    for (int i = 0; i < width; ++i) mine[at + i] = sums[at + i];
  }
}

/// dweight += the sum of the strips: 32 columns per block, eight threads to a column.
__global__ void add_strips_kernel(const float* strips, std::int64_t count, std::int64_t hidden,
                                  float* dweight) {
  __shared__ float sums[8][32];
  const std::int64_t column = std::int64_t{blockIdx.x} * 32 + threadIdx.x;
  float sum = 0;
  if (column < hidden) {
    for (std::int64_t strip = threadIdx.y; strip < count; strip += 8) {
      sum += strips[strip * hidden + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= hidden) return;
  for (int part = 1; part < 8; ++part) sum += sums[part][threadIdx.x];
  dweight[column] += sum;
}

template <class T>
void run_forward(const OpContext& context, const RmsNormForward& args) {
  const auto optional = [](const Tensor& tensor) {
    return tensor.empty() ? nullptr : tensor.as<T>();
  };
  const Forward<T> kernel_args{
      args.x.as<T>(), optional(args.residual), optional(args.sum), args.weight.as<float>(),
      args.y.as<T>(), args.rstd.as<float>(),   args.x.columns(),   args.epsilon};
  const auto rows = static_cast<unsigned>(args.x.rows());
  const auto stream = static_cast<cudaStream_t>(context.stream->native());
  const bool wide =
      args.x.columns() % vector_width<T> == 0 &&
      all_aligned({args.x.data, args.residual.data, args.sum.data, args.weight.data, args.y.data});
  if (wide) {
    forward_kernel<T, vector_width<T>><<<rows, threads, 0, stream>>>(kernel_args);
  } else {
    forward_kernel<T, 1><<<rows, threads, 0, stream>>>(kernel_args);
  }
  CUDA_CHECK(cudaGetLastError());
}

/// As many strips as keep the device busy, but no more than their sums have room in the scratch.
std::int64_t strips_for(const OpContext& context, std::int64_t rows, std::int64_t hidden) {
  const std::int64_t row_bytes = hidden * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t room = context.scratch_bytes / row_bytes;
  require(room > 0, ExitCode::internal,
          "[rmsnorm] the backward pass needs " + std::to_string(row_bytes) +
              " bytes of scratch, it has " + std::to_string(context.scratch_bytes));
  return std::min({rows, most_strips, room});
}

template <class T>
void run_backward(const OpContext& context, const RmsNormBackward& args) {
  const std::int64_t rows = args.x.rows();
  const std::int64_t hidden = args.x.columns();
  const std::int64_t strips = strips_for(context, rows, hidden);
  const std::int64_t sum_bytes = hidden * static_cast<std::int64_t>(sizeof(float));
  const Backward<T> kernel_args{args.dy.as<T>(),
                                args.x.as<T>(),
                                args.weight.as<float>(),
                                args.rstd.as<float>(),
                                args.d_residual.empty() ? nullptr : args.d_residual.as<T>(),
                                args.dx.as<T>(),
                                reinterpret_cast<float*>(context.scratch),
                                rows,
                                hidden,
                                sum_bytes <= most_shared_bytes};
  const std::size_t shared =
      kernel_args.keep_in_shared ? static_cast<std::size_t>(sum_bytes) : std::size_t{0};
  const auto blocks = static_cast<unsigned>(strips);
  const auto stream = static_cast<cudaStream_t>(context.stream->native());
  const bool wide =
      hidden % vector_width<T> == 0 && all_aligned({args.dy.data, args.x.data, args.weight.data,
                                                    args.dx.data, args.d_residual.data});
  if (wide) {
    backward_kernel<T, vector_width<T>><<<blocks, threads, shared, stream>>>(kernel_args);
  } else {
    backward_kernel<T, 1><<<blocks, threads, shared, stream>>>(kernel_args);
  }
  CUDA_CHECK(cudaGetLastError());
  const auto column_blocks = static_cast<unsigned>((hidden + 31) / 32);
  add_strips_kernel<<<column_blocks, dim3(32, 8), 0, stream>>>(kernel_args.strips, strips, hidden,
                                                               args.dweight.as<float>());
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void rmsnorm_forward(const OpContext& context, const RmsNormForward& args) {
  refuse_fp16("rmsnorm", args.x.dtype);
  if (args.x.numel() == 0) return;
  args.x.dtype == DType::f32 ? run_forward<float>(context, args) : run_forward<bf16>(context, args);
}

void rmsnorm_backward(const OpContext& context, const RmsNormBackward& args) {
  refuse_fp16("rmsnorm_backward", args.x.dtype);
  if (args.x.numel() == 0) return;
  args.x.dtype == DType::f32 ? run_backward<float>(context, args)
                             : run_backward<bf16>(context, args);
}

}  // namespace trainctl::cuda
