#include "base/philox.h"
#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

void sgd_plain(const OpContext&, const Sgd& args) {
  const StepState& state = *args.state;
  if (state.found_inf) return;
  const double decay = args.decay && !args.coupled ? state.weight_decay : 0.0F;
  const double coupled = args.decay && args.coupled ? state.weight_decay : 0.0F;
  const Philox random(state.seed, args.rounding.weight_stream(state.step));
  for (std::int64_t i = 0; i < args.parameter.numel(); ++i) {
    const double p = element_of(args.parameter, i);
    double b = element_of(args.gradient, i) * state.clip_coefficient + coupled * p;
    if (!args.momentum.empty()) {
      b += static_cast<double>(args.coefficient) * args.momentum.as<float>()[i];
      args.momentum.as<float>()[i] = static_cast<float>(b);
    }
    const auto updated = static_cast<float>(p - state.learning_rate * (b + decay * p));
    put_at_random(args.parameter, i, updated, random.bits(args.rounding.whole(i)));
    round_to(args.compute, i, updated);
  }
}

}  // namespace trainctl
