#include "plan/cost/expert_overlap.h"

#include <algorithm>

#include "plan/cost/real.h"

namespace trainctl {

namespace {

/// One chunk, without the weights of its rows.
double chunk_seconds(const Plan& plan, std::int64_t rows, const Rates& rates) {
  CollectiveUse use;
  use.operation = "all_to_all";
  use.ranks = plan.mesh.ep;
  use.count = 1;
  use.bytes = rows * plan.model.hidden * size_of(plan.compute) / plan.exchange.chunks;
  return wire_seconds(use, rates);
}

}  // namespace

double exposed_exchange(double product, double there, double back, std::int64_t chunks) {
  double made = 0;
  double sent = there * real(chunks);
  for (std::int64_t i = 1; i <= chunks; ++i) {
    made = std::max(made, there * real(i)) + product / real(chunks);
    sent = std::max(sent, made) + back;
  }
  return sent - product;
}

double hidden_exchange(const Plan& plan, ActionKind kind, const BlockForm& form,
                       const Rates& rates) {
  if (plan.exchange.chunks == 1) return 0;
  const bool repeats = kind == ActionKind::repeat && form.repeats(BlockPart::mlp);
  const bool passes = kind == ActionKind::forward || kind == ActionKind::backward_input;
  if (!repeats && !passes) return 0;
  const LocalShape& local = plan.local;
  const double rows = real(local.routed_tokens) * real(plan.model.topk);
  const double first = plan.model.gated_mlp ? 2 : 1;  // products
  const double product = 2 * rows * real(plan.model.hidden) * real(local.expert_ffn) *
                         (repeats ? first : first + 1) / rates.matmul_flops;
  const double there = chunk_seconds(plan, local.routed_rows, rates);
  const double back = repeats ? 0 : chunk_seconds(plan, local.expert_rows, rates);
  const std::int64_t chunks = plan.exchange.chunks;
  return real(chunks) * (there + back) - exposed_exchange(product, there, back, chunks);
}

}  // namespace trainctl
