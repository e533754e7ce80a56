#include <cmath>

#include "ops/cpu/kernels.h"
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
/// float where there is none.
template <class Copy>
void update(const AdamW& args) {
  const Factors f(args);
  const float* gradient = args.gradient.as<float>();
  float* parameter = args.parameter.as<float>();
  float* first = args.m.as<float>();
  float* second = args.v.as<float>();
  Copy* compute = static_cast<Copy*>(args.compute.data);
  for_elements(args.parameter.numel(), [&, f](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = gradient[i] * f.clip;
      const float m = f.beta1 * first[i] + f.rest1 * g;
      const float v = f.beta2 * second[i] + f.rest2 * g * g;
      const float step = m * f.correction1 / (std::sqrt(v) * f.root_correction2 + f.epsilon);
      const float p = parameter[i] - f.rate * (step + f.decay * parameter[i]);
      first[i] = m;
      second[i] = v;
      parameter[i] = p;
      if constexpr (sizeof(Copy) < sizeof p) compute[i] = from_float<Copy>(p);
    }
  });
}

}  // namespace

void adamw_cpu(const OpContext&, const AdamW& args) {
  if (args.state->found_inf) return;
  with_element_type(args.compute.empty() ? DType::f32 : args.compute.dtype,
                    [&](auto copy) { update<decltype(copy)>(args); });
}

}  // namespace trainctl
