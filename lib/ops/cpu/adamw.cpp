#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/philox_lanes.h"
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

/// The random words of elements [begin, end) of the part.
void fill_words(const AdamW& args, const PhiloxLanes& random, std::int64_t begin, std::int64_t end,
                std::uint32_t* words) {
  const RandomRounding& rounding = args.rounding;
  while (begin < end) {
    const std::int64_t left = rounding.run - (begin + rounding.skip) % rounding.run;
    const std::int64_t count = std::min(end - begin, left);
    random.bits(rounding.whole(begin), count, words);
    begin += count;
    words += count;
  }
}

/// Reads and writes everything once: the update is bound by memory. Copy is the type of `compute`,
/// float where there is none; First and Second are those of m and v.
template <class Copy, class First, class Second>
void update(const AdamW& args) {
  constexpr bool random = sizeof(First) < sizeof(float) || sizeof(Second) < sizeof(float);
  const Factors f(args);
  const PhiloxLanes lanes(args.state->seed, args.rounding.stream(args.state->step));
  float* parameter = args.parameter.as<float>();
  First* first = args.m.as<First>();
  Second* second = args.v.as<Second>();
  Copy* compute = static_cast<Copy*>(args.compute.data);
  for_elements(args.parameter.numel(), [&, f](std::int64_t begin, std::int64_t end) {
    float room[element_piece];
    const float* gradient = as_floats(args.gradient, begin, end, room);
    std::uint32_t words[random ? element_piece : 1];
    if constexpr (random) fill_words(args, lanes, begin, end, words);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = gradient[i - begin] * f.clip;
      const float m = f.beta1 * to_float(first[i]) + f.rest1 * g;
      const float v = f.beta2 * to_float(second[i]) + f.rest2 * g * g;
      const float step = m * f.correction1 / (std::sqrt(v) * f.root_correction2 + f.epsilon);
      const float p = parameter[i] - f.rate * (step + f.decay * parameter[i]);
      const std::uint32_t bits = random ? words[i - begin] : 0;
      first[i] = round_at_random<First>(m, bits);
      second[i] = round_at_random<Second>(v, bits >> 16);
      parameter[i] = p;
      if constexpr (sizeof(Copy) < sizeof p) compute[i] = from_float<Copy>(p);
    }
  });
}

}  // namespace

void adamw_cpu(const OpContext&, const AdamW& args) {
  if (args.state->found_inf) return;
  with_element_type(args.compute.empty() ? DType::f32 : args.compute.dtype, [&](auto copy) {
    with_fp32_or_bf16(args.m, [&](auto first) {
      with_fp32_or_bf16(args.v, [&](auto second) {
        update<decltype(copy), decltype(first), decltype(second)>(args);
      });
    });
  });
}

}  // namespace trainctl
