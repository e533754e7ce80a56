#include "engine/parameters/grad_norm.h"

#include <algorithm>
#include <numeric>

#include "ops/square_sum.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

namespace {

std::vector<std::size_t> in_memory_order(const StagePlan& stage) {
  std::vector<std::size_t> order(stage.parameters.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return stage.flat.offset[a] < stage.flat.offset[b];
  });
  return order;
}

}  // namespace

GradNorm::GradNorm(const Plan& plan, const ParamStore& store, Group& everyone, const Rule& rule,
                   StepState& state)
    : everyone_(everyone),
      parts_(parts(plan.stage_of(everyone.rank()), store)),
      sums_(static_cast<std::size_t>(2 * everyone.size())) {
  const LossScaling& scaling = rule.scaling;
  const Tensor sums = host_tensor(sums_.data(), std::ssize(sums_));
  verdict_ = {.square_sums = sums.view({everyone.size(), 2}),
              .limit = rule.limit,
              .growth = scaling.growth,
              .backoff = scaling.backoff,
              .least = scaling.least,
              .window = scaling.window,
              .hysteresis = scaling.hysteresis,
              .state = &state};
  state.loss_scale = scaling.initial;
  state.hysteresis = scaling.hysteresis;
}

/// What this rank owns, in as few pieces of the gradient buffer as it goes.
std::vector<GradNorm::Part> GradNorm::parts(const StagePlan& stage, const ParamStore& store) const {
  std::vector<Part> made;
  std::int64_t begin = 0;
  bool stretch = false;  // the last piece may go on
  for (const std::size_t index : in_memory_order(stage)) {
    const Ownership& own = store.ownership().parameters[index];
    const std::int64_t at = stage.flat.offset[index];
    const std::size_t sum = own.counts ? 0 : 1;
    const std::int64_t count = stage.parameters[index].shape.numel();
    const bool whole = own.owned.begin == 0 && own.owned.end == count;
    if (!(whole && stretch && made.back().sum == sum)) {
      stretch = whole;
      if (own.owned.begin == own.owned.end) continue;
      begin = at + own.owned.begin;
      made.push_back({{}, sum});
    }
    made.back().gradients = store.gradients().slice(begin, at + own.owned.end);
  }
  return made;
}

void GradNorm::run(const OpContext& context) {
  StepState& state = *verdict_.state;
  state.square_sums[0] = state.square_sums[1] = 0;
  for (const Part& part : parts_) {
    square_sum(context, {.x = part.gradients, .result = &state.square_sums[part.sum]});
  }
  gather_values(everyone_, state.square_sums, sums_, *context.stream);
  step_verdict(context, verdict_);
}

}  // namespace trainctl
