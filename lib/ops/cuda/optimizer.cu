// AdamW and SGD as one pass over parameter, gradient and states, of all parameters in one launch;
// and what decides over a step: sums of squares and the verdict. What changes per step is read from
// device memory.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "base/scratch.h"
#include "ops/adamw.h"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/random_store.cuh"
#include "ops/sgd.h"
#include "ops/square_sum.h"
#include "ops/step_verdict.h"

namespace trainctl::cuda {
namespace {

/// Elements [begin, end) of one call, which are those of this block.
template <class Args>
struct Piece {
  const Args& args;
  std::int64_t begin, end;
};

template <class Args>
__device__ Piece<Args> piece_of_block(const PlacedCalls<Args>& calls) {
  const std::int64_t piece = blockIdx.x;
  std::int64_t low = 0;  // the last call that begins by this piece is in [low, high)
  std::int64_t high = calls.count;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (calls.first[middle] <= piece ? low : high) = middle;
  }
  const std::int64_t begin = (piece - calls.first[low]) * calls.piece;
  const Args& args = global_pointer(calls.calls)[low];
  return {args, begin, min(begin + calls.piece, elements_of(args))};
}

template <class... Tensors>
__device__ bool aligned(const Tensors&... tensors) {
  return ((reinterpret_cast<std::uintptr_t>(tensors.data) | ...) & 15U) == 0;
}

/// work.run<width>(at) for all elements of the block's piece: four at a time where `wide`, and of
/// such packs `unroll` at once.
template <int unroll, class Work>
__device__ void run_piece(const Work& work, bool wide, std::int64_t begin, std::int64_t end) {
  const std::int64_t packed = wide ? begin + (end - begin) / 4 * 4 : begin;
#pragma unroll unroll
  for (std::int64_t at = begin + threadIdx.x * 4; at < packed; at += block_threads * 4) {
    work.template run<4>(at);
  }
#pragma unroll 1
  for (std::int64_t at = packed + threadIdx.x; at < end; at += block_threads) {
    work.template run<1>(at);
  }
}

/// The rounded copy of a parameter: bf16, fp16 or none.
struct Copy {
  void* data;
  bool is_bf16;

  __device__ explicit Copy(const Tensor& tensor)
      : data(tensor.data), is_bf16(tensor.dtype == DType::bf16) {}

  template <int width>
  __device__ void write(std::int64_t at, const float (&values)[width]) const {
    if (data == nullptr) return;
    if (is_bf16) return store<width>(global_pointer(static_cast<bf16*>(data)) + at, values);
    store<width>(global_pointer(static_cast<fp16*>(data)) + at, values);
  }
};

/// A gradient: fp32 or bf16.
struct Gradients {
  const void* data;
  bool is_bf16;

  __device__ explicit Gradients(const Tensor& tensor)
      : data(tensor.data), is_bf16(tensor.dtype == DType::bf16) {}

  template <int width>
  __device__ void read(std::int64_t at, float (&values)[width]) const {
    if (is_bf16) return load<width>(global_pointer(static_cast<const bf16*>(data)) + at, values);
    load<width>(global_pointer(static_cast<const float*>(data)) + at, values);
  }
};

template <class Weight, class First, class Second>
struct AdamWork {
  static constexpr bool random = sizeof(First) + sizeof(Second) < 2 * sizeof(float);

  Weight* parameter;
  Gradients gradient;
  First* first;
  Second* second;
  Copy copy;
  float beta1, beta2, epsilon, weight_decay, clip, rate, correction1, correction2;
  const RandomRounding& rounding;  // where it is, not in registers
  Philox philox, of_weight;

  __device__ explicit AdamWork(const AdamW& args)
      : parameter(static_cast<Weight*>(args.parameter.data)),
        gradient(args.gradient),
        first(static_cast<First*>(args.m.data)),
        second(static_cast<Second*>(args.v.data)),
        copy(args.compute),
        beta1(args.beta1),
        beta2(args.beta2),
        epsilon(args.epsilon),
        weight_decay(args.decay ? args.state->weight_decay : 0.0F),
        clip(args.state->clip_coefficient),
        rate(args.state->learning_rate),
        correction1(args.state->bias_correction1),
        correction2(args.state->bias_correction2),
        rounding(args.rounding),
        philox(args.state->seed, args.rounding.stream(args.state->step)),
        of_weight(args.state->seed, args.rounding.weight_stream(args.state->step)) {}

  template <int width>
  __device__ void run(std::int64_t at) const {
    std::uint32_t words[width] = {};
    if constexpr (random) random_words<width>(philox, rounding, at, words);
    float p[width];
    float g[width];
    float m[width];
    float v[width];
    load<width>(global_pointer(parameter) + at, p);
    gradient.read<width>(at, g);
    load<width>(global_pointer(first) + at, m);
    load<width>(global_pointer(second) + at, v);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float clipped = g[i] * clip;
      m[i] = beta1 * m[i] + (1.0F - beta1) * clipped;
      v[i] = beta2 * v[i] + (1.0F - beta2) * clipped * clipped;
      const float step = m[i] / correction1 / (sqrtf(v[i] / correction2) + epsilon);
      p[i] -= rate * (step + weight_decay * p[i]);
    }
    store_at_random<width>(global_pointer(first) + at, m, words, 0);
    store_at_random<width>(global_pointer(second) + at, v, words, 16);
    store_weight<width>(parameter, p, at, of_weight, rounding);
    copy.write<width>(at, p);
  }
};

template <class Weight, class First, class Second>
__device__ void adamw_piece(const Piece<AdamW>& piece) {
  const AdamW& args = piece.args;
  run_piece<1>(AdamWork<Weight, First, Second>(args),
               aligned(args.parameter, args.gradient, args.m, args.v, args.compute), piece.begin,
               piece.end);
}

template <class Weight>
__device__ void adamw_piece(const Piece<AdamW>& piece) {
  const bool narrow = piece.args.v.dtype == DType::bf16;
  if (piece.args.m.dtype == DType::bf16) {
    return narrow ? adamw_piece<Weight, bf16, bf16>(piece)
                  : adamw_piece<Weight, bf16, float>(piece);
  }
  return narrow ? adamw_piece<Weight, float, bf16>(piece)
                : adamw_piece<Weight, float, float>(piece);
}

/// Three blocks on a multiprocessor keep enough bytes on their way; with random numbers the
/// registers suffice for two. `any_narrow`: some parameter or moment of the calls is bf16.
template <bool any_narrow>
__global__ void __launch_bounds__(block_threads, any_narrow ? 2 : 3)
    adamw_kernel(PlacedCalls<AdamW> calls) {
  const Piece<AdamW> piece = piece_of_block(calls);
  if (piece.args.state->found_inf) return;
  if constexpr (!any_narrow) return adamw_piece<float, float, float>(piece);
  if (piece.args.parameter.dtype == DType::bf16) return adamw_piece<bf16>(piece);
  adamw_piece<float>(piece);
}

template <class Weight>
struct SgdWork {
  Weight* parameter;
  Gradients gradient;
  float* momentum;
  Copy copy;
  float coefficient, weight_decay, coupled, clip, rate;
  const RandomRounding& rounding;
  Philox of_weight;

  __device__ explicit SgdWork(const Sgd& args)
      : parameter(static_cast<Weight*>(args.parameter.data)),
        gradient(args.gradient),
        momentum(static_cast<float*>(args.momentum.data)),
        copy(args.compute),
        coefficient(args.coefficient),
        weight_decay(args.decay && !args.coupled ? args.state->weight_decay : 0.0F),
        coupled(args.decay && args.coupled ? args.state->weight_decay : 0.0F),
        clip(args.state->clip_coefficient),
        rate(args.state->learning_rate),
        rounding(args.rounding),
        of_weight(args.state->seed, args.rounding.weight_stream(args.state->step)) {}

  template <int width>
  __device__ void run(std::int64_t at) const {
    float p[width];
    float g[width];
    float b[width] = {};
    load<width>(global_pointer(parameter) + at, p);
    gradient.read<width>(at, g);
    if (momentum != nullptr) load<width>(global_pointer(momentum) + at, b);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      b[i] = coefficient * b[i] + (g[i] * clip + coupled * p[i]);
      p[i] -= rate * (b[i] + weight_decay * p[i]);
    }
    store_weight<width>(parameter, p, at, of_weight, rounding);
    if (momentum != nullptr) store<width>(global_pointer(momentum) + at, b);
    copy.write<width>(at, p);
  }
};

/// `any_narrow`: some parameter of the calls is bf16.
template <bool any_narrow>
__global__ void __launch_bounds__(block_threads) sgd_kernel(PlacedCalls<Sgd> calls) {
  const auto [args, begin, end] = piece_of_block(calls);
  if (args.state->found_inf) return;
  const bool wide = aligned(args.parameter, args.gradient, args.momentum, args.compute);
  if (any_narrow && args.parameter.dtype == DType::bf16) {
    return run_piece<1>(SgdWork<bf16>(args), wide, begin, end);
  }
  run_piece<1>(SgdWork<float>(args), wide, begin, end);
}

template <class T>
struct SquareWork {
  const T* x;
  double* sum;

  template <int width>
  __device__ void run(std::int64_t at) const {
    float values[width];
    load<width>(global_pointer(x) + at, values);
#pragma unroll
    for (int i = 0; i < width; ++i) *sum += static_cast<double>(values[i]) * values[i];
  }
};

/// The thread's share of the sum of x^2 over a piece.
template <class T>
__device__ double squares_of(const Piece<SquareSum>& piece) {
  const Tensor& x = piece.args.x;
  double sum = 0;
  run_piece<4>(SquareWork<T>{static_cast<const T*>(x.data), &sum}, aligned(x), piece.begin,
               piece.end);
  return sum;
}

/// partial[b] = the sum of x^2 over piece b, in double.
__global__ void __launch_bounds__(block_threads)
    squares_kernel(PlacedCalls<SquareSum> calls, double* partial) {
  const Piece<SquareSum> piece = piece_of_block(calls);
  const bool narrow = piece.args.x.dtype == DType::bf16;
  const double sum = narrow ? squares_of<bf16>(piece) : squares_of<float>(piece);
  const double whole = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = whole;
}

/// sums[c] = the partial sums of call c, by one block.
__global__ void __launch_bounds__(block_threads)
    add_partial_kernel(PlacedCalls<SquareSum> calls, const double* partial, double* sums) {
  const std::int64_t call = blockIdx.x;
  const std::int64_t end = call + 1 < calls.count ? calls.first[call + 1] : calls.pieces;
  double sum = 0;
  for (std::int64_t i = calls.first[call] + threadIdx.x; i < end; i += block_threads) {
    sum += partial[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[call] = sum;
}

/// The results of all calls, in their order.
__global__ void add_results_kernel(PlacedCalls<SquareSum> calls, const double* sums) {
  for (std::int64_t call = 0; call < calls.count; ++call) *calls.calls[call].result += sums[call];
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

/// Whether there is anything to do; if so it is on the device.
template <class Args>
bool any_piece(const Calls<Args>& calls) {
  require(std::ssize(calls.list()) == calls.placed().count, ExitCode::internal,
          "[cuda] a list of calls is not on the device");
  return calls.placed().pieces > 0;
}

Grid one_block_each(std::int64_t pieces) {
  return {dim3(static_cast<unsigned>(pieces)), dim3(block_threads)};
}

}  // namespace

void adamw(const OpContext& context, const Calls<AdamW>& calls) {
  if (!any_piece(calls)) return;
  const PlacedCalls<AdamW>& placed = calls.placed();
  const bool any_narrow = std::ranges::any_of(calls.list(), [](const AdamW& args) {
    return args.parameter.dtype == DType::bf16 || args.m.dtype == DType::bf16 ||
           args.v.dtype == DType::bf16;
  });
  launch(any_narrow ? adamw_kernel<true> : adamw_kernel<false>, one_block_each(placed.pieces),
         stream_of(context), placed);
}

void sgd(const OpContext& context, const Calls<Sgd>& calls) {
  if (!any_piece(calls)) return;
  const PlacedCalls<Sgd>& placed = calls.placed();
  const bool any_narrow = std::ranges::any_of(
      calls.list(), [](const Sgd& args) { return args.parameter.dtype == DType::bf16; });
  launch(any_narrow ? sgd_kernel<true> : sgd_kernel<false>, one_block_each(placed.pieces),
         stream_of(context), placed);
}

void square_sum(const OpContext& context, const Calls<SquareSum>& calls) {
  if (!any_piece(calls)) return;
  const PlacedCalls<SquareSum>& placed = calls.placed();
  const cudaStream_t stream = stream_of(context);
  constexpr std::int64_t room = 2 * most_pieces * std::int64_t{sizeof(double)};
  static_assert(room <= scratch_bytes_per_thread);
  auto* partial = reinterpret_cast<double*>(context.scratch);
  double* sums = partial + most_pieces;
  launch(squares_kernel, one_block_each(placed.pieces), stream, placed, partial);
  launch(add_partial_kernel, one_block_each(placed.count), stream, placed, partial, sums);
  launch(add_results_kernel, {dim3(1), dim3(1)}, stream, placed, sums);
}

void step_verdict(const OpContext& context, const StepVerdict& args) {
  launch(verdict_kernel, {dim3(1), dim3(1)}, stream_of(context),
         args.square_sums.elements<double>(), args.square_sums.rows(),
         Rules{args.limit, args.growth, args.backoff, args.least, args.window, args.hysteresis},
         args.state);
}

}  // namespace trainctl::cuda
