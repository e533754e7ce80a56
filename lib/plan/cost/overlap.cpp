#include "plan/cost/overlap.h"

#include <algorithm>
#include <vector>

#include "plan/cost/estimate.h"
#include "plan/model/attention.h"
#include "plan/model/experts.h"
#include "plan/model/mlp.h"

namespace trainctl {

namespace {

/// A region between a gather and a sum, for one block and micro-batch of a rank.
struct Region {
  Exchange enter, leave;
  double first = 0, last = 0;  // seconds of the first products and of the last one
};

Region region_of(const LayerForm& form, const Products& products, const Exchanges& exchanges,
                 const Rates& rates) {
  Region region{.enter = exchanges.front(), .leave = exchanges.back()};
  std::int64_t first = 0;
  std::int64_t last = 0;
  for (const Product& one : products) {
    if (one.is_attention()) continue;
    // All these products have the residual stream's features as input or output.
    (one.part == region.enter.part ? first : last) += one.in * one.out / form.hidden;
  }
  const double each = 2 * real(region.enter.elements) / rates.matmul_flops;
  region.first = each * real(first);
  region.last = each * real(last);
  return region;
}

/// The regions of a block: attention, and a feed-forward layer without experts.
std::vector<Region> regions_of(const Plan& plan, int unit, const Rates& rates) {
  const LayerForm form = plan.form_of(unit);
  const LayerShare share = plan.share_of(unit);
  std::vector<Region> regions{region_of(form, attention_products(form, share.local),
                                        attention_exchanges(form, share), rates)};
  if (form.has_experts()) return regions;
  regions.push_back(
      region_of(form, mlp_products(form, share.local), mlp_exchanges(form, share), rates));
  return regions;
}

class Hidden {
 public:
  Hidden(const Plan& plan, const Rates& rates)
      : plan_(plan), rates_(rates), chunks_(row_chunks(plan.local.stream_rows)) {}

  double of(const Action& row, const StagePlan& stage) const {
    double seconds = 0;
    for (int unit = std::max(1, row.begin); unit < row.end && unit <= plan_.model.layers; ++unit) {
      seconds += of(row.kind, unit, stage.forms.of(unit, row.chunk, row.microbatch));
    }
    return seconds;
  }
  double of(ActionKind kind, int unit, const BlockForm& form) const {
    double seconds = 0;
    for (const Region& region : regions_of(plan_, unit, rates_)) seconds += of(kind, form, region);
    return seconds;
  }

 private:
  double of(ActionKind kind, const BlockForm& form, const Region& region) const {
    const Exchange& enter = region.enter;
    const Exchange& leave = region.leave;
    const bool repeated = !form.gathered(*enter.part);
    double seconds = 0;
    if (kind == ActionKind::forward) {
      if (enter.forward_chunks) seconds += gather(region.first);
      if (leave.forward_chunks) seconds += scatter(region.last);
    } else if (kind == ActionKind::repeat) {
      if (enter.forward_chunks && form.repeats(*enter.part) && repeated) {
        seconds += gather(region.first);
      }
      const bool sums = leave.part && form.repeats(*leave.part);
      if (leave.forward_chunks && sums) seconds += scatter(region.last);
    } else if (kind == ActionKind::backward_input) {
      if (leave.backward_chunks) seconds += gather(region.last);
      if (enter.backward_chunks) seconds += scatter(region.first);
      if (enter.backward_whole) seconds += whole(GroupOperation::reduce_scatter, region.first);
      if (enter.forward_whole && enter.weights_in_back && repeated) {
        seconds += whole(GroupOperation::all_gather, region.first);
      }
    } else if (enter.forward_whole && !enter.weights_in_back && repeated) {  // W
      seconds += whole(GroupOperation::all_gather, region.last);
    }
    return seconds;
  }

  double wire(GroupOperation operation, std::int64_t chunks) const {
    const bool wide = plan_.fp32_sums && operation == GroupOperation::reduce_scatter;
    const std::int64_t element = wide ? 4 : size_of(plan_.compute);
    const std::int64_t bytes = plan_.local.tokens * plan_.model.hidden * element / chunks;
    return wire_seconds(
        {.operation = operation, .ranks = plan_.mesh.tp, .count = 1, .bytes = bytes}, rates_);
  }
  double gather(double product) const {
    const double chunk = wire(GroupOperation::all_gather, chunks_);
    return real(chunks_) * chunk - exposed_gather(product, chunk, chunks_, plan_.mesh.tp);
  }
  double scatter(double product) const {
    const double chunk = wire(GroupOperation::reduce_scatter, chunks_);
    return real(chunks_) * chunk - exposed_scatter(product, chunk, chunks_);
  }
  double whole(GroupOperation operation, double product) const {
    return std::min(product, wire(operation, 1));
  }

  const Plan& plan_;
  Rates rates_;
  std::int64_t chunks_;
};

}  // namespace

double exposed_gather(double product, double chunk, std::int64_t chunks, std::int64_t ranks) {
  double now = product / real(ranks);
  const double each = (product - now) / real(chunks);
  for (std::int64_t i = 1; i <= chunks; ++i) now = std::max(now, real(i) * chunk) + each;
  return now - product;
}

double exposed_scatter(double product, double chunk, std::int64_t chunks) {
  double sent = 0;
  for (std::int64_t i = 1; i <= chunks; ++i) {
    sent = std::max(sent, product * real(i) / real(chunks)) + chunk;
  }
  return sent - product;
}

PassSeconds ring_wait(const Plan& plan, int block, const Rates& rates) {
  const LayerShare share = plan.share_of(block);
  const std::int64_t ranks = share.context.ring;
  if (ranks == 1) return {};
  CollectiveUse passed;
  passed.ranks = 1;
  for (const LayerCall& one : attention_context_calls(share)) {
    if (one.operation != GroupOperation::send || one.backward) continue;
    passed.operation = one.operation;
    passed.ranks = one.ranks;
    passed.count = one.count;
    passed.bytes = one.count * one.bytes();
  }
  const FlopsEstimate flops = estimate_flops(
      plan.model, plan.micro_batch_size * plan.model.seq_length, {{block, block + 1}});
  const bool whole = share.split.attention == SplitBy::whole;
  const double attention = flops.attention_causal / 3 /
                           real((whole ? 1 : plan.mesh.tp) * plan.mesh.cp) / rates.matmul_flops;
  const double hidden = attention * real(ranks - 1) / real(ranks);
  const double wait = std::max(0.0, wire_seconds(passed, rates) - hidden);
  return {wait, 2 * wait, 0};  // B has twice the work and twice the messages
}

double hidden_over_tp(const Plan& plan, const StagePlan& stage, const Rates& rates) {
  if (!plan.overlap.any) return 0;
  const Hidden hidden(plan, rates);
  double seconds = 0;
  for (const Action& row : stage.actions) {
    if (is_pass(row.kind)) seconds += hidden.of(row, stage);
  }
  return seconds;
}

double hidden_over_tp(const Plan& plan, ActionKind kind, int unit, const BlockForm& form,
                      const Rates& rates) {
  return plan.overlap.any ? Hidden(plan, rates).of(kind, unit, form) : 0;
}

double hidden_seconds(const Plan& plan, const StagePlan& stage, const Rates& rates) {
  double seconds = hidden_over_tp(plan, stage, rates);
  if (plan.exchange.chunks == 1) return seconds;
  for (const Action& row : stage.actions) {
    if (!is_pass(row.kind) || row.leg != ExchangePhase::whole) continue;
    for (int unit = std::max(1, row.begin); unit < row.end && unit <= plan.model.layers; ++unit) {
      if (!plan.model.kind(unit - 1).experts) continue;
      const BlockForm form = stage.forms.of(unit, row.chunk, row.microbatch);
      seconds += hidden_exchange(plan, unit, row.kind, form, rates);
    }
  }
  return seconds;
}

double early_weight_seconds(const Plan& plan, int unit, const Rates& rates) {
  if (!plan.overlap.any) return 0;
  double seconds = 0;
  for (const Region& region : regions_of(plan, unit, rates)) {
    if (region.enter.weights_in_back) seconds += region.first;
  }
  return seconds;
}

namespace {

/// Seconds of one chunk of rows sent to experts in F or, with `returns`, sent back; without
/// weights. B sends the same number of rows.
double chunk_seconds(const LayerCalls& calls, bool returns, const Rates& rates) {
  double seconds = 0;
  for (const LayerCall& one : calls) {
    if (one.backward || one.returns != returns || one.width == 1) continue;
    const std::int64_t bytes = one.bytes() / one.chunks;
    seconds += wire_seconds(
        {.operation = one.operation, .ranks = one.ranks, .count = 1, .bytes = bytes}, rates);
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
