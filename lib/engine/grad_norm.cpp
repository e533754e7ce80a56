#include "engine/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/square_sum.h"
#include "plan/shard.h"

namespace trainctl {

namespace {

/// What a rank adds to the norm where gradients are scattered: what it counts of what it owns.
std::vector<Tensor> counted_slices(const ParamStore& store) {
  std::vector<Tensor> slices;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const Ownership& own = store.ownership().parameters[static_cast<std::size_t>(i)];
    if (!own.counts || own.owned.begin == own.owned.end) continue;
    const Tensor gradient = store.gradient(i);
    slices.push_back(gradient.view({gradient.numel()}).slice(own.owned.begin, own.owned.end));
  }
  return slices;
}

/// The stretches of the gradient buffer that `rank` adds to the norm: of all ranks with the same
/// shard of a parameter one counts it. Replicas do so each for themselves, unless each has a part.
std::vector<Tensor> counted_gradients(const Plan& plan, const ParamStore& store,
                                      std::int64_t rank) {
  if (scatters_gradients(plan)) return counted_slices(store);
  const StagePlan& stage = plan.stage_of(rank);
  std::vector<int> order(stage.parameters.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return stage.flat.offset[static_cast<std::size_t>(a)] <
           stage.flat.offset[static_cast<std::size_t>(b)];
  });
  std::vector<Tensor> stretches;
  std::int64_t begin = 0;
  bool counting = false;
  for (std::size_t i = 0; i <= order.size(); ++i) {
    const bool end = i == order.size();
    const auto index = end ? 0 : static_cast<std::size_t>(order[i]);
    const bool counts = !end && counts_over_tensor_ranks(stage.parameters[index], plan.mesh, rank);
    if (counts == counting) continue;
    const std::int64_t at = end ? stage.flat.length : stage.flat.offset[index];
    if (counting) stretches.push_back(store.gradients().slice(begin, at));
    begin = at;
    counting = counts;
  }
  return stretches;
}

}  // namespace

GradNorm::GradNorm(const Plan& plan, const ParamStore& store, Group& model, Group& everyone)
    : counted_(counted_gradients(plan, store, everyone.rank())),
      group_(scatters_gradients(plan) ? everyone : model),
      squares_(static_cast<std::size_t>(group_.size())) {}

double GradNorm::run(const OpContext& context, StepState& state, double limit) {
  state.square_sum = 0;
  for (const Tensor& x : counted_) square_sum(context, {.x = x, .result = &state.square_sum});
  gather_values(group_, {&state.square_sum, 1}, squares_, *context.stream);
  const double norm = std::sqrt(std::accumulate(squares_.begin(), squares_.end(), 0.0));
  const double coefficient = limit > 0 ? limit / (norm + 1e-6) : 1.0;
  state.clip_coefficient = coefficient < 1.0 ? static_cast<float>(coefficient) : 1.0F;
  return norm;
}

}  // namespace trainctl
