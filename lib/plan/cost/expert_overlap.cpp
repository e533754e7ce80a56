#include "plan/cost/expert_overlap.h"

#include <algorithm>

#include "plan/cost/real.h"
#include "plan/model/experts.h"

namespace trainctl {

namespace {

/// One chunk of the rows that go there in F or, with `returns`, come back; without their weights. B
/// sends as much.
double chunk_seconds(const LayerCalls& calls, bool returns, const Rates& rates) {
  double seconds = 0;
  for (const LayerCall& one : calls) {
    if (one.backward || one.returns != returns || one.width == 1) continue;
    CollectiveUse use;
    use.operation = one.operation;
    use.ranks = one.ranks;
    use.count = 1;
    use.bytes = one.bytes() / one.chunks;
    seconds += wire_seconds(use, rates);
  }
  return seconds;
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

double expert_products(const Plan& plan, int unit, bool all, const Rates& rates) {
  double flops = 0;
  for (const Product& one : routed_products(plan.form_of(unit), plan.local_of(unit))) {
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
  const double product = expert_products(plan, unit, !repeats, rates);
  const LayerForm layer = plan.form_of(unit);
  const LayerShare share = plan.share_of(unit);
  LayerCalls calls = expert_row_calls(layer, share);
  for (const LayerCall& one : expert_part_calls(layer, share)) calls.push_back(one);
  const double there = chunk_seconds(calls, false, rates);
  const double back = repeats ? 0 : chunk_seconds(calls, true, rates);
  const std::int64_t chunks = plan.exchange.chunks;
  return real(chunks) * (there + back) - exposed_exchange(product, there, back, chunks);
}

}  // namespace trainctl
