#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/random_words.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

/// The factors of one step, so that the loop multiplies instead of dividing.
struct Factors {
  float clip, beta1, beta2, rest1, rest2, correction1, root_correction2, epsilon, rate, decay;

  explicit Factors(const AdamW& args)
      : clip(args.state->clip_coefficient),
        beta1(args.beta1),
        beta2(args.beta2),
        rest1(1.0F - args.beta1),
        rest2(1.0F - args.beta2),
        correction1(1.0F / args.state->bias_correction1),
        root_correction2(1.0F / std::sqrt(args.state->bias_correction2)),
        epsilon(args.epsilon),
        rate(args.state->learning_rate),
        decay(args.decay ? args.state->weight_decay : 0.0F) {}
};

/// Reads and writes everything once: the update is bound by memory. Copy is the type of `compute`,
/// float where there is none; Weight, First and Second are those of the parameter, m and v.
template <class Weight, class Copy, class First, class Second>
void update(const AdamW& args) {
  constexpr bool random = sizeof(First) < sizeof(float) || sizeof(Second) < sizeof(float);
  constexpr bool random_weight = sizeof(Weight) < sizeof(float);
  const Factors f(args);
  const RandomWords words_of(args.state->seed, args.rounding.stream(args.state->step),
                             args.rounding);
  const RandomWords weight_words_of(args.state->seed, args.rounding.weight_stream(args.state->step),
                                    args.rounding);
  Weight* parameter = args.parameter.as<Weight>();
  First* first = args.m.as<First>();
  Second* second = args.v.as<Second>();
  Copy* compute = static_cast<Copy*>(args.compute.data);
  for_elements(args.parameter.numel(), [&, f](std::int64_t begin, std::int64_t end) {
    float room[element_piece];
    const float* gradient = as_floats(args.gradient, begin, end, room);
    std::uint32_t words[random ? element_piece : 1];
    if constexpr (random) words_of.fill(begin, end, words);
    std::uint32_t weight_words[random_weight ? element_piece : 1];
    if constexpr (random_weight) weight_words_of.fill(begin, end, weight_words);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = gradient[i - begin] * f.clip;
      const float m = f.beta1 * to_float(first[i]) + f.rest1 * g;
      const float v = f.beta2 * to_float(second[i]) + f.rest2 * g * g;
      const float step = m * f.correction1 / (std::sqrt(v) * f.root_correction2 + f.epsilon);
      const float before = to_float(parameter[i]);
      const float p = before - f.rate * (step + f.decay * before);
      const std::uint32_t bits = random ? words[i - begin] : 0;
      first[i] = round_at_random<First>(m, bits);
      second[i] = round_at_random<Second>(v, bits >> 16);
      parameter[i] = round_at_random<Weight>(p, random_weight ? weight_words[i - begin] : 0);
      if constexpr (sizeof(Copy) < sizeof p) compute[i] = from_float<Copy>(p);
    }
  });
}

}  // namespace

void adamw_cpu(const OpContext&, const AdamW& args) {
  if (args.state->found_inf) return;
  with_fp32_or_bf16(args.m, [&](auto first) {
    with_fp32_or_bf16(args.v, [&](auto second) {
      using First = decltype(first);
      using Second = decltype(second);
      if (args.parameter.dtype == DType::bf16) return update<bf16, float, First, Second>(args);
      with_element_type(args.compute.empty() ? DType::f32 : args.compute.dtype,
                        [&](auto copy) { update<float, decltype(copy), First, Second>(args); });
    });
  });
}

}  // namespace trainctl
