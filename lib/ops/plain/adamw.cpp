#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void adamw_plain(const OpContext&, const AdamW& args) {
  const StepState& state = *args.state;
  if (state.found_inf) return;
  const double decay = args.decay ? state.weight_decay : 0.0F;
  const double beta1 = args.beta1;
  const double beta2 = args.beta2;
  for (std::int64_t i = 0; i < args.parameter.numel(); ++i) {
    const double g = static_cast<double>(args.gradient.as<float>()[i]) * state.clip_coefficient;
    const double m = beta1 * args.m.as<float>()[i] + (1.0 - beta1) * g;
    const double v = beta2 * args.v.as<float>()[i] + (1.0 - beta2) * g * g;
    const double p = args.parameter.as<float>()[i];
    const double step =
        (m / state.bias_correction1) / (std::sqrt(v / state.bias_correction2) + args.epsilon);
    args.m.as<float>()[i] = static_cast<float>(m);
    args.v.as<float>()[i] = static_cast<float>(v);
    const auto updated = static_cast<float>(p - state.learning_rate * (step + decay * p));
    args.parameter.as<float>()[i] = updated;
    round_to(args.compute, i, updated);
  }
}

}  // namespace trainctl
