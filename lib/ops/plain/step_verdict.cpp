#include <algorithm>
#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

void plain_squares(const OpContext&, const SquareSum& args) {
  constexpr std::int64_t block = 4096;
  const std::int64_t count = args.x.numel();
  for (std::int64_t begin = 0; begin < count; begin += block) {
    double sum = 0;
    for (std::int64_t i = begin; i < count && i < begin + block; ++i) {
      const double x = element_of(args.x, i);
      sum += x * x;
    }
    *args.result += sum;
  }
}

}  // namespace

void square_sum_plain(const OpContext& context, const Calls<SquareSum>& calls) {
  each_call<SquareSum, plain_squares>(context, calls);
}

namespace {

void lower_scale(const StepVerdict& args, StepState& state) {
  state.good_steps = 0;
  state.hysteresis = std::max<std::int64_t>(0, state.hysteresis - 1);
  if (state.hysteresis > 0) return;
  state.loss_scale = std::max(state.loss_scale * args.backoff, args.least);
}

void raise_scale(const StepVerdict& args, StepState& state) {
  constexpr double most = 0x1p64;
  if (++state.good_steps < args.window) return;
  state.good_steps = 0;
  state.hysteresis = args.hysteresis;
  if (state.loss_scale * args.growth <= most) state.loss_scale *= args.growth;
}

}  // namespace

void step_verdict_plain(const OpContext&, const StepVerdict& args) {
  StepState& state = *args.state;
  const double* sums = args.square_sums.as<double>();
  double total = 0;
  double others = 0;
  for (std::int64_t rank = 0; rank < args.square_sums.rows(); ++rank) {
    total += sums[2 * rank];
    others += sums[2 * rank + 1];
  }
  const double norm = std::sqrt(total) / state.loss_scale;
  const double clip = args.limit > 0 ? std::min(1.0, args.limit / (norm + 1e-6)) : 1.0;
  state.grad_norm = norm;
  state.clip_coefficient = static_cast<float>(clip / state.loss_scale);
  state.found_inf = !std::isfinite(total) || !std::isfinite(others);
  if (state.found_inf) {
    lower_scale(args, state);
  } else {
    ++state.updates;
    raise_scale(args, state);
  }
}

}  // namespace trainctl
