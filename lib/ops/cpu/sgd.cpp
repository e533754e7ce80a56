#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/random_words.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

/// Weight is the type of the parameter, Copy that of `compute`, float where there is none.
template <bool WithMomentum, class Weight, class Copy>
void update(const Sgd& args) {
  const float clip = args.state->clip_coefficient;
  const float rate = args.state->learning_rate;
  const float decay = args.decay && !args.coupled ? args.state->weight_decay : 0.0F;
  const float coupled = args.decay && args.coupled ? args.state->weight_decay : 0.0F;
  const float coefficient = args.coefficient;
  constexpr bool random = sizeof(Weight) < sizeof(float);
  const RandomWords words_of(args.state->seed, args.rounding.weight_stream(args.state->step),
                             args.rounding);
  Weight* parameter = args.parameter.as<Weight>();
  float* momentum = static_cast<float*>(args.momentum.data);
  Copy* compute = static_cast<Copy*>(args.compute.data);
  for_elements(args.parameter.numel(), [=, &args, &words_of](std::int64_t begin, std::int64_t end) {
    float room[element_piece];
    const float* gradient = as_floats(args.gradient, begin, end, room);
    std::uint32_t words[random ? element_piece : 1];
    if constexpr (random) words_of.fill(begin, end, words);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float before = to_float(parameter[i]);
      float b = gradient[i - begin] * clip + coupled * before;
      if constexpr (WithMomentum) {
        b += coefficient * momentum[i];
        momentum[i] = b;
      }
      const float p = before - rate * (b + decay * before);
      parameter[i] = round_at_random<Weight>(p, random ? words[i - begin] : 0);
      if constexpr (sizeof(Copy) < sizeof p) compute[i] = from_float<Copy>(p);
    }
  });
}

}  // namespace

void sgd_cpu(const OpContext&, const Sgd& args) {
  if (args.state->found_inf) return;
  const bool plain = args.momentum.empty();
  if (args.parameter.dtype == DType::bf16) {
    return plain ? update<false, bf16, float>(args) : update<true, bf16, float>(args);
  }
  with_element_type(args.compute.empty() ? DType::f32 : args.compute.dtype, [&](auto copy) {
    using Copy = decltype(copy);
    plain ? update<false, float, Copy>(args) : update<true, float, Copy>(args);
  });
}

}  // namespace trainctl
