// AdamW as one pass over parameter, gradient and moments; what changes per step is read from device
// memory.
#include <algorithm>

#include "device/cuda_check.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/kernels.h"

namespace trainctl::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t most_blocks = 8192;

struct Update {
  float* parameter;
  const float* gradient;
  float* m;
  float* v;
  bf16* compute;
  std::int64_t count;
  float beta1, beta2, epsilon;
  bool decay;
  const StepState* state;
};

/// Elements [at, at + width).
template <int width>
__device__ void update(const Update& args, const StepState& state, std::int64_t at) {
  float p[width];
  float g[width];
  float m[width];
  float v[width];
  load<width>(args.parameter + at, p);
  load<width>(args.gradient + at, g);
  load<width>(args.m + at, m);
  load<width>(args.v + at, v);
  const float decay = args.decay ? state.weight_decay : 0.0F;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float gradient = g[i] * state.clip_coefficient;
    m[i] = args.beta1 * m[i] + (1.0F - args.beta1) * gradient;
    v[i] = args.beta2 * v[i] + (1.0F - args.beta2) * gradient * gradient;
    const float root = sqrtf(v[i] / state.bias_correction2) + args.epsilon;
    p[i] -= state.learning_rate * (m[i] / state.bias_correction1 / root + decay * p[i]);
  }
  store<width>(args.parameter + at, p);
  store<width>(args.m + at, m);
  store<width>(args.v + at, v);
  if (args.compute != nullptr) store<width>(args.compute + at, p);
}

template <int width>
__global__ void __launch_bounds__(threads) adamw_kernel(Update args) {
  const StepState state = *args.state;
  if (state.found_inf) return;
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t whole = args.count / width;
  for (std::int64_t pack = thread; pack < whole; pack += stride) {
    update<width>(args, state, pack * width);
  }
  const std::int64_t rest = whole * width + thread;
  if (rest < args.count) update<1>(args, state, rest);
}

}  // namespace

void adamw(const OpContext& context, const AdamW& args) {
  refuse_fp16("adamw", args.compute.dtype);
  const std::int64_t count = args.parameter.numel();
  if (count == 0) return;
  const Update kernel_args{args.parameter.as<float>(),
                           args.gradient.as<float>(),
                           args.m.as<float>(),
                           args.v.as<float>(),
                           args.compute.empty() ? nullptr : args.compute.as<bf16>(),
                           count,
                           args.beta1,
                           args.beta2,
                           args.epsilon,
                           args.decay,
                           args.state};
  constexpr int width = vector_width<float>;
  const bool wide = all_aligned(
      {args.parameter.data, args.gradient.data, args.m.data, args.v.data, args.compute.data});
  const std::int64_t per_block = std::int64_t{threads} * (wide ? width : 1);
  const auto blocks =
      static_cast<unsigned>(std::min((count + per_block - 1) / per_block, most_blocks));
  const auto stream = static_cast<cudaStream_t>(context.stream->native());
  if (wide) {
    adamw_kernel<width><<<blocks, threads, 0, stream>>>(kernel_args);
  } else {
    adamw_kernel<1><<<blocks, threads, 0, stream>>>(kernel_args);
  }
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace trainctl::cuda
