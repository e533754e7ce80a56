#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

/// Copy is the type of `compute`, float where there is none.
template <bool WithMomentum, class Copy>
void update(const Sgd& args) {
  const float clip = args.state->clip_coefficient;
  const float rate = args.state->learning_rate;
  const float decay = args.decay ? args.state->weight_decay : 0.0F;
  const float coefficient = args.coefficient;
  float* parameter = args.parameter.as<float>();
  float* momentum = static_cast<float*>(args.momentum.data);
  Copy* compute = static_cast<Copy*>(args.compute.data);
  for_elements(args.parameter.numel(), [=, &args](std::int64_t begin, std::int64_t end) {
    float room[element_piece];
    const float* gradient = as_floats(args.gradient, begin, end, room);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      float b = gradient[i - begin] * clip;
      if constexpr (WithMomentum) {
        b += coefficient * momentum[i];
        momentum[i] = b;
      }
      const float p = parameter[i] - rate * (b + decay * parameter[i]);
      parameter[i] = p;
      if constexpr (sizeof(Copy) < sizeof p) compute[i] = from_float<Copy>(p);
    }
  });
}

}  // namespace

void sgd_cpu(const OpContext&, const Sgd& args) {
  if (args.state->found_inf) return;
  with_element_type(args.compute.empty() ? DType::f32 : args.compute.dtype, [&](auto copy) {
    if (args.momentum.empty()) {
      update<false, decltype(copy)>(args);
    } else {
      update<true, decltype(copy)>(args);
    }
  });
}

}  // namespace trainctl
