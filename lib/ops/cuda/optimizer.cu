// AdamW and SGD as one pass over parameter, gradient and states; and what decides over a step: sums
// of squares and the verdict. What changes per step is read from device memory.
#include <cmath>

#include "base/philox.h"
#include "base/scratch.h"
#include "ops/adamw.h"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/elements.h"
#include "ops/sgd.h"
#include "ops/square_sum.h"
#include "ops/step_verdict.h"

namespace trainctl::cuda {
namespace {

/// The rounded copy of a parameter: bf16, fp16 or none.
struct Copy {
  bf16* as_bf16;
  fp16* as_fp16;

  explicit Copy(const Tensor& tensor)
      : as_bf16(tensor.empty() || tensor.dtype != DType::bf16 ? nullptr : tensor.elements<bf16>()),
        as_fp16(tensor.empty() || tensor.dtype != DType::f16 ? nullptr : tensor.elements<fp16>()) {}

  template <int width>
  __device__ void write(std::int64_t at, const float (&values)[width]) const {
    if (as_bf16 != nullptr) store<width>(as_bf16 + at, values);
    if (as_fp16 != nullptr) store<width>(as_fp16 + at, values);
  }
};

/// A gradient: fp32 or bf16.
struct Gradients {
  const float* as_f32;
  const bf16* as_bf16;

  explicit Gradients(const Tensor& tensor)
      : as_f32(tensor.dtype == DType::f32 ? tensor.elements<float>() : nullptr),
        as_bf16(tensor.dtype == DType::bf16 ? tensor.elements<bf16>() : nullptr) {}

  template <int width>
  __device__ void read(std::int64_t at, float (&values)[width]) const {
    if (as_bf16 != nullptr) return load<width>(as_bf16 + at, values);
    load<width>(as_f32 + at, values);
  }
};

/// Of moments in bf16, rounded at random; fp32 is stored as it is.
template <int width>
__device__ void store_moment(float* to, const float (&values)[width],
                             const std::uint32_t (&)[width], int) {
  store<width>(to, values);
}
template <int width>
__device__ void store_moment(bf16* to, const float (&values)[width],
                             const std::uint32_t (&random)[width], int shift) {
#pragma unroll
  for (int i = 0; i < width; ++i) {
    to[i].bits = round_bits(__float_as_uint(values[i]), random[i] >> shift);
  }
}

template <class First, class Second>
struct AdamWork {
  float* parameter;
  Gradients gradient;
  First* first;
  Second* second;
  Copy copy;
  float beta1, beta2, epsilon;
  bool decay;
  RandomRounding rounding;
  const StepState* state;

  template <int width>
  __device__ void run(std::int64_t at) const {
    if (state->found_inf) return;
    const float weight_decay = decay ? state->weight_decay : 0.0F;
    const float clip = state->clip_coefficient;
    const float rate = state->learning_rate;
    const float correction1 = state->bias_correction1;
    const float correction2 = state->bias_correction2;
    float p[width];
    float g[width];
    float m[width];
    float v[width];
    load<width>(parameter + at, p);
    gradient.read<width>(at, g);
    load<width>(first + at, m);
    load<width>(second + at, v);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float clipped = g[i] * clip;
      m[i] = beta1 * m[i] + (1.0F - beta1) * clipped;
      v[i] = beta2 * v[i] + (1.0F - beta2) * clipped * clipped;
      const float step = m[i] / correction1 / (sqrtf(v[i] / correction2) + epsilon);
      p[i] -= rate * (step + weight_decay * p[i]);
    }
    std::uint32_t random[width] = {};
    if (sizeof(First) + sizeof(Second) < 2 * sizeof(float)) {
      const Philox philox(state->seed, rounding.stream(state->step));
#pragma unroll
      for (int i = 0; i < width; ++i) random[i] = philox.bits(rounding.whole(at + i));
    }
    store<width>(parameter + at, p);
    store_moment<width>(first + at, m, random, 0);
    store_moment<width>(second + at, v, random, 16);
    copy.write<width>(at, p);
  }
};

struct SgdWork {
  float* parameter;
  Gradients gradient;
  float* momentum;
  Copy copy;
  float coefficient;
  bool decay;
  const StepState* state;

  template <int width>
  __device__ void run(std::int64_t at) const {
    if (state->found_inf) return;
    const float weight_decay = decay ? state->weight_decay : 0.0F;
    const float clip = state->clip_coefficient;
    const float rate = state->learning_rate;
    float p[width];
    float g[width];
    float b[width] = {};
    load<width>(parameter + at, p);
    gradient.read<width>(at, g);
    if (momentum != nullptr) load<width>(momentum + at, b);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      b[i] = coefficient * b[i] + g[i] * clip;
      p[i] -= rate * (b[i] + weight_decay * p[i]);
    }
    store<width>(parameter + at, p);
    if (momentum != nullptr) store<width>(momentum + at, b);
    copy.write<width>(at, p);
  }
};

constexpr int square_piece = 4096;  // elements of a partial sum

/// partial[b] = the sum of x^2 over piece b, in double.
template <class T, bool wide>
__global__ void __launch_bounds__(block_threads)
    squares_kernel(const T* x, std::int64_t count, double* partial) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * square_piece;
  const std::int64_t end = min(count, begin + square_piece);
  constexpr int width = wide ? 4 : 1;
  double sum = 0;
  for (std::int64_t at = begin + std::int64_t{threadIdx.x} * width; at < end;
       at += std::int64_t{block_threads} * width) {
    float values[width];
    if (at + width <= end) {
      load<width>(x + at, values);
    } else {
      for (int i = 0; i < width; ++i) {
        float value[1] = {0.0F};
        if (at + i < end) load<1>(x + at + i, value);
        values[i] = value[0];
      }
    }
#pragma unroll
    for (int i = 0; i < width; ++i) sum += static_cast<double>(values[i]) * values[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// *result += the partial sums, by one block.
__global__ void __launch_bounds__(block_threads)
    add_partial_kernel(const double* partial, std::int64_t count, double* result) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += block_threads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result += sum;
}

/// What of StepVerdict the kernel reads.
struct Rules {
  double limit, growth, backoff, least;
  std::int64_t window, hysteresis;
};

__global__ void verdict_kernel(const double* sums, std::int64_t ranks, Rules rules,
                               StepState* state) {
  double total = 0;
  double others = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    total += sums[2 * rank];
    others += sums[2 * rank + 1];
  }
  const double norm = sqrt(total) / state->loss_scale;
  const double ratio = rules.limit / (norm + 1e-6);
  const double clip = rules.limit > 0 && ratio < 1.0 ? ratio : 1.0;
  state->grad_norm = norm;
  state->clip_coefficient = static_cast<float>(clip / state->loss_scale);
  state->found_inf = !isfinite(total) || !isfinite(others);
  if (state->found_inf) {
    state->good_steps = 0;
    state->hysteresis = max(std::int64_t{0}, state->hysteresis - 1);
    const double lower = state->loss_scale * rules.backoff;
    if (state->hysteresis == 0) state->loss_scale = lower > rules.least ? lower : rules.least;
    return;
  }
  constexpr double most = 0x1p64;
  ++state->updates;
  if (++state->good_steps < rules.window) return;
  state->good_steps = 0;
  state->hysteresis = rules.hysteresis;
  if (state->loss_scale * rules.growth <= most) state->loss_scale *= rules.growth;
}

}  // namespace

namespace {

template <class First, class Second>
void adamw_of(const OpContext& context, const AdamW& args) {
  const bool wide = all_aligned(
      {args.parameter.data, args.gradient.data, args.m.data, args.v.data, args.compute.data});
  for_elements<4>(context, args.parameter.numel(), wide,
                  AdamWork<First, Second>{
                      args.parameter.elements<float>(), Gradients(args.gradient),
                      args.m.elements<First>(), args.v.elements<Second>(), Copy(args.compute),
                      args.beta1, args.beta2, args.epsilon, args.decay, args.rounding, args.state});
}

}  // namespace

void adamw(const OpContext& context, const AdamW& args) {
  const bool narrow = args.v.dtype == DType::bf16;
  if (args.m.dtype == DType::bf16) {
    return narrow ? adamw_of<bf16, bf16>(context, args) : adamw_of<bf16, float>(context, args);
  }
  return narrow ? adamw_of<float, bf16>(context, args) : adamw_of<float, float>(context, args);
}

void sgd(const OpContext& context, const Sgd& args) {
  const bool wide =
      all_aligned({args.parameter.data, args.gradient.data, args.momentum.data, args.compute.data});
  for_elements<4>(context, args.parameter.numel(), wide,
                  SgdWork{args.parameter.elements<float>(), Gradients(args.gradient),
                          args.momentum.empty() ? nullptr : args.momentum.elements<float>(),
                          Copy(args.compute), args.coefficient, args.decay, args.state});
}

void square_sum(const OpContext& context, const SquareSum& args) {
  const cudaStream_t stream = stream_of(context);
  auto* partial = reinterpret_cast<double*>(context.scratch);
  constexpr std::int64_t most_pieces = scratch_bytes_per_thread / std::int64_t{sizeof(double)};
  const std::int64_t count = args.x.numel();
  for (std::int64_t begin = 0; begin < count; begin += most_pieces * square_piece) {
    const std::int64_t part = std::min(count - begin, most_pieces * square_piece);
    const std::int64_t pieces = (part + square_piece - 1) / square_piece;
    const Grid grid{dim3(static_cast<unsigned>(pieces)), dim3(block_threads)};
    with_fp32_or_bf16(args.x, [&](auto element) {
      using T = decltype(element);
      const T* x = args.x.elements<T>() + begin;
      launch(all_aligned({x}) ? squares_kernel<T, true> : squares_kernel<T, false>, grid, stream, x,
             part, partial);
    });
    launch(add_partial_kernel, {dim3(1), dim3(block_threads)}, stream, partial, pieces,
           args.result);
  }
}

void step_verdict(const OpContext& context, const StepVerdict& args) {
  launch(verdict_kernel, {dim3(1), dim3(1)}, stream_of(context),
         args.square_sums.elements<double>(), args.square_sums.rows(),
         Rules{args.limit, args.growth, args.backoff, args.least, args.window, args.hysteresis},
         args.state);
}

}  // namespace trainctl::cuda
