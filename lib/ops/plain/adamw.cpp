#include <cmath>

#include "base/philox.h"
#include "ops/elements.h"
#include "ops/plain/kernels.h"
#include "ops/plain/tell_accesses.h"

namespace trainctl {

void adamw_plain(const OpContext&, const AdamW& args) {
  const StepState& state = *args.state;
  tell_read(state);
  if (state.found_inf) return;
  tell_reads({args.gradient});
  tell_writes({args.parameter, args.m, args.v, args.compute});
  const double decay = args.decay ? state.weight_decay : 0.0F;
  const double beta1 = args.beta1;
  const double beta2 = args.beta2;
  const Philox random(state.seed, args.rounding.stream(state.step));
  const Philox of_weight(state.seed, args.rounding.weight_stream(state.step));
  for (std::int64_t i = 0; i < args.parameter.numel(); ++i) {
    const double g = element_of(args.gradient, i) * state.clip_coefficient;
    const double m = beta1 * element_of(args.m, i) + (1.0 - beta1) * g;
    const double v = beta2 * element_of(args.v, i) + (1.0 - beta2) * g * g;
    const double p = element_of(args.parameter, i);
    const double step =
        (m / state.bias_correction1) / (std::sqrt(v / state.bias_correction2) + args.epsilon);
    const std::uint64_t whole = args.rounding.whole(i);
    const std::uint32_t bits = random.bits(whole);
    put_at_random(args.m, i, static_cast<float>(m), bits);
    put_at_random(args.v, i, static_cast<float>(v), bits >> 16);
    const auto updated = static_cast<float>(p - state.learning_rate * (step + decay * p));
    put_at_random(args.parameter, i, updated, of_weight.bits(whole));
    round_to(args.compute, i, updated);
  }
}

}  // namespace trainctl
