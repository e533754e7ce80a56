#include <cmath>

#include "base/philox.h"
#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

void put_moment(const Tensor& x, std::int64_t i, float value, std::uint32_t random) {
  if (x.dtype == DType::bf16) {
    x.as<bf16>()[i] = round_at_random<bf16>(value, random);
  } else {
    x.as<float>()[i] = value;
  }
}

}  // namespace

void adamw_plain(const OpContext&, const AdamW& args) {
  const StepState& state = *args.state;
  if (state.found_inf) return;
  const double decay = args.decay ? state.weight_decay : 0.0F;
  const double beta1 = args.beta1;
  const double beta2 = args.beta2;
  const Philox random(state.seed, args.rounding.stream(state.step));
  for (std::int64_t i = 0; i < args.parameter.numel(); ++i) {
    const double g = element_of(args.gradient, i) * state.clip_coefficient;
    const double m = beta1 * element_of(args.m, i) + (1.0 - beta1) * g;
    const double v = beta2 * element_of(args.v, i) + (1.0 - beta2) * g * g;
    const double p = args.parameter.as<float>()[i];
    const double step =
        (m / state.bias_correction1) / (std::sqrt(v / state.bias_correction2) + args.epsilon);
    const std::uint32_t bits = random.bits(args.rounding.whole(i));
    put_moment(args.m, i, static_cast<float>(m), bits);
    put_moment(args.v, i, static_cast<float>(v), bits >> 16);
    const auto updated = static_cast<float>(p - state.learning_rate * (step + decay * p));
    args.parameter.as<float>()[i] = updated;
    round_to(args.compute, i, updated);
  }
}

}  // namespace trainctl
