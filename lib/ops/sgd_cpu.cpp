#include "ops/elements.h"
#include "ops/kernels_cpu.h"

namespace trainctl {

namespace {

template <bool WithMomentum, bool WithCompute>
void update(const Sgd& args) {
  const float clip = args.state->clip_coefficient;
  const float rate = args.state->learning_rate;
  const float decay = args.decay ? args.state->weight_decay : 0.0F;
  const float coefficient = args.coefficient;
  const float* gradient = args.gradient.as<float>();
  float* parameter = args.parameter.as<float>();
  float* momentum = static_cast<float*>(args.momentum.data);
  bf16* compute = static_cast<bf16*>(args.compute.data);
  for_elements(args.parameter.numel(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      float b = gradient[i] * clip;
      if constexpr (WithMomentum) {
        b += coefficient * momentum[i];
        momentum[i] = b;
      }
      const float p = parameter[i] - rate * (b + decay * parameter[i]);
      parameter[i] = p;
      if constexpr (WithCompute) compute[i] = to_bf16(p);
    }
  });
}

}  // namespace

void sgd_cpu(const OpContext&, const Sgd& args) {
  const bool with_compute = !args.compute.empty();
  if (args.momentum.empty()) {
    with_compute ? update<false, true>(args) : update<false, false>(args);
  } else {
    with_compute ? update<true, true>(args) : update<true, false>(args);
  }
}

}  // namespace trainctl
