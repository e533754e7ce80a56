#include "plan/cost/expert_overlap.h"

#include <algorithm>

#include "plan/cost/real.h"
#include "plan/model/experts.h"

namespace trainctl {

namespace {

/// One chunk of so many rows between ranks with other experts, and of what the parts of experts
/// gather or add up; without the weights of the rows.
double chunk_seconds(const Plan& plan, std::int64_t rows, GroupOperation between_parts,
                     const Rates& rates) {
  const auto seconds = [&](GroupOperation operation, std::int64_t ranks, std::int64_t of,
                           DType type) {
    CollectiveUse use;
    use.operation = operation;
    use.ranks = ranks;
    use.count = 1;
    use.bytes = of * plan.model.hidden * size_of(type) / plan.exchange.chunks;
    return wire_seconds(use, rates);
  };
  const double exchanged = seconds(GroupOperation::all_to_all, plan.mesh.ep, rows, plan.compute);
  const std::int64_t parts = plan.exchange.parts;
  if (parts == 1) return exchanged;
  const bool sums = between_parts == GroupOperation::reduce_scatter;
  return exchanged + seconds(between_parts, parts, plan.local.gathered_rows,
                             sums && plan.fp32_sums ? DType::f32 : plan.compute);
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

bool moves_rows(const CollectiveUse& use) {
  return use.cargo == Cargo::expert_rows || use.cargo == Cargo::part_rows;
}

std::int64_t expert_tokens(const Plan& plan) {
  return plan.local.sent_tokens * plan.exchange.parts;
}

double expert_products(const Plan& plan, int unit, bool all, const Rates& rates) {
  const LayerForm form = layer_form(plan.model, unit - 1);
  double flops = 0;
  for (const Product& one : routed_products(form, plan.local, expert_tokens(plan))) {
    if (all || one.part) flops += one.flops();
  }
  return flops / rates.matmul_flops;
}

double hidden_exchange(const Plan& plan, int unit, ActionKind kind, const BlockForm& form,
                       const Rates& rates) {
  if (plan.exchange.chunks == 1) return 0;
  const bool repeats = kind == ActionKind::repeat && form.repeats(BlockPart::mlp);
  const bool passes = kind == ActionKind::forward || kind == ActionKind::backward_input;
  if (!repeats && !passes) return 0;
  const LocalShape& local = plan.local;
  const double product = expert_products(plan, unit, !repeats, rates);
  const double there = chunk_seconds(plan, local.routed_rows, GroupOperation::all_gather, rates);
  const double back =
      repeats ? 0 : chunk_seconds(plan, local.received_rows, GroupOperation::reduce_scatter, rates);
  const std::int64_t chunks = plan.exchange.chunks;
  return real(chunks) * (there + back) - exposed_exchange(product, there, back, chunks);
}

}  // namespace trainctl
