// Updates as one pass over parameter, gradient and states, with one launch for all parameters; sums
// of squares; and the verdict about a step. Values that change per step are read from device
// memory.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "base/philox.h"
#include "base/scratch.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/enqueue.cuh"
#include "ops/cuda/kernels.h"
#include "ops/optimizer.h"
#include "ops/random_rounding.h"
#include "ops/update_rules.h"

namespace trainctl::cuda {
namespace {

// Storage of values in fp32, or in bf16 rounded at random (ops/random_rounding.h).

/// The random words for elements [at, at + width) of a part. Four consecutive elements of the whole
/// tensor share one Philox block if aligned.
template <int width>
__device__ void random_words(const Philox& philox, const RandomRounding& rounding, std::int64_t at,
                             std::uint32_t (&words)[width]) {
  const std::uint64_t whole = rounding.whole(at);
  if (width == 4 && whole % 4 == 0 && rounding.whole(at + width - 1) == whole + width - 1) {
    const auto block = philox.block(whole / 4);
#pragma unroll
    for (int i = 0; i < width; ++i) words[i] = block[static_cast<std::size_t>(i)];
    return;
  }
#pragma unroll
  for (int i = 0; i < width; ++i) words[i] = philox.bits(rounding.whole(at + i));
}

/// Stores bf16 values rounded at random, and fp32 values unchanged.
template <int width>
__device__ void store_at_random(float* to, const float (&values)[width],
                                const std::uint32_t (&)[width], int) {
  store<width>(to, values);
}
template <int width>
__device__ void store_at_random(bf16* to, const float (&values)[width],
                                const std::uint32_t (&random)[width], int shift) {
  struct alignas(width * sizeof(bf16)) Chunk {
    bf16 at[width];
  } chunk;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    chunk.at[i].bits = round_bits(__float_as_uint(values[i]), random[i] >> shift);
  }
  *reinterpret_cast<Chunk*>(to) = chunk;
}

/// Stores values of a parameter: fp32 unchanged, bf16 rounded with the words of its own stream.
template <int width>
__device__ void store_weight(float* to, const float (&values)[width], std::int64_t at,
                             const Philox&, const RandomRounding&) {
  store<width>(global_pointer(to) + at, values);
}
template <int width>
__device__ void store_weight(bf16* to, const float (&values)[width], std::int64_t at,
                             const Philox& philox, const RandomRounding& rounding) {
  std::uint32_t words[width];
  random_words<width>(philox, rounding, at, words);
  store_at_random<width>(global_pointer(to) + at, values, words, 0);
}

/// The elements [begin, end) of one call that this block processes.
template <class Args>
struct Piece {
  const Args& args;
  std::int64_t begin, end;
};

template <class Args>
__device__ Piece<Args> piece_of_block(const PlacedCalls<Args>& calls) {
  const std::int64_t piece = blockIdx.x;
  std::int64_t low = 0;  // [low, high) has the last call that starts by this piece
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

/// Calls work.run<width>(at) for all elements of the block's piece: four elements at a time if
/// `wide`, with `unroll` such packs in flight.
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

/// The rounded copy of a parameter in bf16 or fp16, or none.
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

/// A gradient in fp32 or bf16.
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

/// The update of some elements. Absent states are neither read nor written.
template <class Rule, class Weight, class First, class Second>
struct UpdateWork {
  static constexpr bool random = sizeof(First) + sizeof(Second) < 2 * sizeof(float);

  Weight* parameter;
  Gradients gradient;
  First* first;
  Second* second;
  Copy copy;
  float clip;
  Rule rule;
  const RandomRounding& rounding;  // a reference, to save registers
  Philox philox, of_weight;

  __device__ explicit UpdateWork(const Update& args)
      : parameter(static_cast<Weight*>(args.parameter.data)),
        gradient(args.gradient),
        first(static_cast<First*>(args.states[0].data)),
        second(static_cast<Second*>(args.states[1].data)),
        copy(args.compute),
        clip(Rule::clipped ? args.state->clip_coefficient : 1.0F),
        rule(args),
        rounding(args.rounding),
        philox(args.state->seed, args.rounding.stream(args.state->step)),
        of_weight(args.state->seed, args.rounding.weight_stream(args.state->step)) {}

  template <int width>
  __device__ void run(std::int64_t at) const {
    std::uint32_t words[width] = {};
    if constexpr (random) random_words<width>(philox, rounding, at, words);
    const bool keeps = Rule::states > 0 && (Rule::narrow_states || first != nullptr);
    float p[width];
    float g[width];
    float one[width] = {};
    float two[width] = {};
    load<width>(global_pointer(parameter) + at, p);
    gradient.read<width>(at, g);
    if (keeps) load<width>(global_pointer(first) + at, one);
    if constexpr (Rule::states > 1) load<width>(global_pointer(second) + at, two);
#pragma unroll
    for (int i = 0; i < width; ++i) p[i] = rule.next(p[i], g[i] * clip, one[i], two[i]);
    if (keeps) store_at_random<width>(global_pointer(first) + at, one, words, 0);
    if constexpr (Rule::states > 1) {
      store_at_random<width>(global_pointer(second) + at, two, words, 16);
    }
    store_weight<width>(parameter, p, at, of_weight, rounding);
    copy.write<width>(at, p);
  }
};

template <class Rule, class Weight, class First, class Second>
__device__ void update_piece(const Piece<Update>& piece) {
  const Update& args = piece.args;
  run_piece<1>(UpdateWork<Rule, Weight, First, Second>(args),
               aligned(args.parameter, args.gradient, args.states[0], args.states[1], args.compute),
               piece.begin, piece.end);
}

/// Selects the types of the states.
template <class Rule, class Weight>
__device__ void update_piece(const Piece<Update>& piece) {
  if constexpr (!Rule::narrow_states) {
    update_piece<Rule, Weight, float, float>(piece);
  } else {
    const bool narrow = piece.args.states[0].dtype == DType::bf16;
    if constexpr (Rule::states < 2) {
      narrow ? update_piece<Rule, Weight, bf16, float>(piece)
             : update_piece<Rule, Weight, float, float>(piece);
    } else if (piece.args.states[1].dtype == DType::bf16) {
      narrow ? update_piece<Rule, Weight, bf16, bf16>(piece)
             : update_piece<Rule, Weight, float, bf16>(piece);
    } else {
      narrow ? update_piece<Rule, Weight, bf16, float>(piece)
             : update_piece<Rule, Weight, float, float>(piece);
    }
  }
}

/// Three blocks per multiprocessor keep enough loads in flight; with random numbers, registers
/// suffice only for two. `any_narrow`: some parameter or state of the calls is bf16.
template <class Rule, bool any_narrow>
__global__ void __launch_bounds__(block_threads, any_narrow ? 2 : 3)
    update_kernel(PlacedCalls<Update> calls) {
  const Piece<Update> piece = piece_of_block(calls);
  if (piece.args.state->found_inf) return;
  if constexpr (!any_narrow) return update_piece<Rule, float, float, float>(piece);
  if (piece.args.parameter.dtype == DType::bf16) return update_piece<Rule, bf16>(piece);
  update_piece<Rule, float>(piece);
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

/// This thread's share of the sum of x^2 over a piece.
template <class T>
__device__ double squares_of(const Piece<SquareSum>& piece) {
  const Tensor& x = piece.args.x;
  double sum = 0;
  run_piece<4>(SquareWork<T>{static_cast<const T*>(x.data), &sum}, aligned(x), piece.begin,
               piece.end);
  return sum;
}

/// partial[b] = sum of x^2 over piece b, in double.
__global__ void __launch_bounds__(block_threads)
    squares_kernel(PlacedCalls<SquareSum> calls, double* partial) {
  const Piece<SquareSum> piece = piece_of_block(calls);
  const bool narrow = piece.args.x.dtype == DType::bf16;
  const double sum = narrow ? squares_of<bf16>(piece) : squares_of<float>(piece);
  const double whole = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = whole;
}

/// sums[c] = sum of the partial sums of call c; one block per call.
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

/// Adds the sum of each call to its result, in the order of the calls.
__global__ void add_results_kernel(PlacedCalls<SquareSum> calls, const double* sums) {
  for (std::int64_t call = 0; call < calls.count; ++call) *calls.calls[call].result += sums[call];
}

/// The members of StepVerdict that the kernel reads.
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

/// Whether any call of the list has elements. Throws if the list is not on the device.
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

void update(const OpContext& context, const Calls<Update>& calls) {
  if (!any_piece(calls)) return;
  const PlacedCalls<Update>& placed = calls.placed();
  const bool any_narrow = std::ranges::any_of(calls.list(), [](const Update& args) {
    return args.parameter.dtype == DType::bf16 || args.states[0].dtype == DType::bf16 ||
           args.states[1].dtype == DType::bf16;
  });
  with_rule<float, false>(calls.list().front().rule, [&]<class Rule>() {
    launch(any_narrow ? update_kernel<Rule, true> : update_kernel<Rule, false>,
           one_block_each(placed.pieces), stream_of(context), placed);
  });
}

void square_sum(const OpContext& context, const Calls<SquareSum>& calls) {
  if (!any_piece(calls)) return;
  const PlacedCalls<SquareSum>& placed = calls.placed();
  const cudaStream_t stream = stream_of(context);
  constexpr std::int64_t room = 2 * max_pieces * std::int64_t{sizeof(double)};
  static_assert(room <= scratch_bytes_per_thread);
  auto* partial = reinterpret_cast<double*>(context.scratch);
  double* sums = partial + max_pieces;
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
