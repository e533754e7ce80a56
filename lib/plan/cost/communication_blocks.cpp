#include <algorithm>

#include "base/at.h"
#include "plan/cost/communication.h"
#include "plan/cost/expert_overlap.h"
#include "plan/tables/groups.h"

namespace trainctl {

namespace {

constexpr std::int64_t counted_as = 8;  // bytes of a number of rows

using enum GroupOperation;

UseList::Call layer_call(GroupOperation operation, Cargo cargo, GroupKind group) {
  return UseList::layer_call(operation, cargo, group);
}

/// A region between enter (from the stream) and leave (to it), and their duals. `first` is the part
/// that begins with the region's first product; the last product of the MLP is never repeated.
void add_region(UseList& list, const BlockPasses& passes, Cargo cargo, BlockPart first,
                SplitBy split = SplitBy::features, const RegionOverlap& overlap = {}) {
  const Inside inside = inside_of(split);
  const auto region = [&](bool chunked) {
    return UseList::Region{cargo, UnitKind::block, list.stream_elements(), 0, chunked};
  };
  const Layout stream = list.stream();
  const bool last = first == BlockPart::mlp;
  list.reshard(stream, inside.reads, region(overlap.gather), passes.gathers(first));
  list.reshard(inside.makes, stream, region(overlap.scatter),
               last ? passes.once : passes.of(BlockPart::projection));
  list.reshard(dual(stream), dual(inside.makes), region(overlap.gather_back), passes.once);
  list.reshard(dual(inside.reads), dual(stream), region(overlap.scatter_back), passes.once);
}

/// A weight gradient needs its gathered input once more, unless that is kept.
void add_gathers(UseList& list, const BlockPasses& passes, Cargo cargo, BlockPart first,
                 SplitBy split = SplitBy::features) {
  if (!gathers(list.stream(), split)) return;
  const UseList::Region region{cargo, UnitKind::block, list.stream_elements()};
  list.reshard(list.stream(), inside_of(split).reads, region, passes.weight_gathers(first));
}

/// Tokens for heads where attention is split by tokens: queries, keys and values there, the result
/// back, and the duals in backward.
void add_head_exchange(UseList& list, const BlockPasses& passes, const LocalShape& local) {
  const bool at_once = list.plan().splits.moves_at_once;
  const std::int64_t parts = at_once ? 1 : local.head_ranks;
  const std::int64_t feature = local.attention_rows * parts * list.element();
  const UseList::Call call =
      layer_call(at_once ? all_to_all : all_gather, Cargo::heads, tensor_group);
  const std::int64_t forward = passes.of(BlockPart::qkv);
  list.add(call, forward + passes.of(BlockPart::attention) + 2 * passes.once, feature * local.q);
  list.add(call, 2 * (forward + passes.once), feature * local.kv);
}

/// Features of the keys that attention has, after tensor-parallel ranks have exchanged heads.
std::int64_t attended_kv(const LocalShape& local) { return local.kv / local.head_ranks; }

/// Keys and values around a ring, each in two messages: of the next rank while this rank works on
/// its own; in backward their gradients follow them.
void add_ring(UseList& list, const BlockPasses& passes, const ContextSplit& split,
              const LocalShape& local) {
  const std::int64_t bytes = local.tokens * attended_kv(local) * list.element();
  const std::int64_t hops = split.ring - 1;
  const std::int64_t count = 2 * hops * (passes.of(BlockPart::attention) + 2 * passes.once);
  for (const GroupOperation operation : {send, receive}) {
    UseList::Call call = layer_call(operation, Cargo::keys_and_values, ring_kind(split));
    call.ranks = split.ring;
    list.add(call, count, bytes);
  }
}

/// Tokens for heads: queries, keys and values there, the result back, and the duals in backward.
void add_heads(UseList& list, const BlockPasses& passes, const ContextSplit& split,
               const LocalShape& local) {
  const std::int64_t q = local.tokens * local.q * list.element();
  const std::int64_t kv = local.tokens * local.kv * list.element();
  const std::int64_t forward = passes.of(BlockPart::qkv);
  UseList::Call call = layer_call(all_to_all, Cargo::heads, heads_kind(split));
  call.ranks = split.heads;
  list.add(call, forward + passes.of(BlockPart::attention) + 2 * passes.once, q);
  list.add(call, 2 * (forward + passes.once), kv);
}

/// Keys and values, once more in backward, and their gradients.
void add_key_gathers(UseList& list, const BlockPasses& passes, const ContextSplit& split,
                     const LocalShape& local) {
  const std::int64_t all = split.gather * local.tokens * attended_kv(local) * list.element();
  const auto call = [](GroupOperation operation) {
    return layer_call(operation, Cargo::keys_and_values, group_over({Axis::cp}));
  };
  list.add(call(all_gather), 2 * (passes.of(BlockPart::attention) + passes.once), all);
  list.add(call(reduce_scatter), 2 * passes.once, all);
}

void add_context(UseList& list, int unit, const BlockPasses& passes) {
  const ContextSplit split = list.plan().context.of_unit(unit);
  const LocalShape local = list.plan().local_of(unit);
  if (split.heads > 1) add_heads(list, passes, split, local);
  if (split.ring > 1) add_ring(list, passes, split, local);
  if (split.gather > 1) add_key_gathers(list, passes, split, local);
}

/// What ranks with parts of the same experts gather of rows, weights and gradients, and add up of
/// what they make. Each call has the room of all of them.
void add_expert_parts(UseList& list, std::int64_t forward, std::int64_t backward) {
  const Plan& plan = list.plan();
  const std::int64_t rows = plan.local.gathered_rows;
  const auto add = [&](GroupOperation operation, std::int64_t count, std::int64_t bytes) {
    UseList::Call call = layer_call(operation, Cargo::part_rows, expert_parts_group);
    call.at_most = true;
    list.add_total(call, count * plan.exchange.chunks, count * rows * bytes);
  };
  const std::int64_t row = plan.model.hidden * list.element();
  const std::int64_t sum = plan.model.hidden * (plan.fp32_sums ? fp32_bytes : list.element());
  add(all_gather, forward, row);
  add(all_gather, forward, fp32_bytes);  // the weights
  add(all_gather, backward, row);
  add(reduce_scatter, 2 * backward, sum);  // of F and of B
  add(reduce_scatter, backward, fp32_bytes);
}

/// The router's scores over tp, and of each token over ep: its row to its experts and back, the
/// same for the gradients. How many rows there are follows from what the router chooses; these are
/// the most.
void add_experts(UseList& list, const BlockPasses& passes) {
  const Plan& plan = list.plan();
  const ModelShape& model = plan.model;
  const std::int64_t forward = passes.of(BlockPart::mlp);
  const ExchangeRule& rule = plan.exchange;
  if (!rule.by_stream) {
    const UseList::Region scores{Cargo::router, UnitKind::block, plan.local.tokens * model.experts,
                                 fp32_bytes};
    list.reshard(list.stream(), Layout::replicated, scores, forward);
    list.reshard(dual(Layout::replicated), dual(list.stream()), scores, passes.once);
  }
  if (model.shared_gate) {
    const UseList::Region gate{Cargo::shared_gate, UnitKind::block, plan.local.tokens, fp32_bytes};
    list.reshard(list.stream(), Layout::replicated, gate, forward);
    list.reshard(dual(Layout::replicated), dual(list.stream()), gate, passes.once);
  }
  list.add(layer_call(all_gather, Cargo::scores, routers_kind(plan.mesh, rule)), forward,
           plan.local.routing_ranks * plan.local.routed_tokens * model.experts * fp32_bytes);
  const std::int64_t counts = plan.mesh.ep * model.experts * counted_as;
  const auto add_counts = [&](GroupKind kind, std::int64_t ranks, std::int64_t bytes) {
    UseList::Call call = layer_call(all_gather, Cargo::expert_counts, counts_kind(kind, rule));
    call.ranks = ranks;
    list.add(call, forward, bytes);
  };
  add_counts(experts_group, plan.mesh.ep, counts);
  if (rule.parts > 1) {
    add_counts(expert_parts_group, rule.parts, rule.parts * counts);
    add_expert_parts(list, forward, passes.once);
  }
  UseList::Call call = layer_call(all_to_all, Cargo::expert_rows, experts_group);
  call.at_most = true;
  const std::int64_t row = model.hidden * list.element();
  const std::int64_t sent = plan.local.routed_rows;
  const std::int64_t received = plan.local.received_rows;
  const auto add = [&](std::int64_t count, std::int64_t bytes) {
    list.add_total(call, count * rule.chunks, count * bytes);
  };
  add(2 * forward, sent * (row + fp32_bytes) / 2);          // rows, and their weights
  add(passes.once, received * row);                         // what the experts give
  add(passes.once, sent * row);                             // its gradient
  add(2 * passes.once, received * (row + fp32_bytes) / 2);  // of rows and of weights
}

/// What the operators of a block exchange over tp, by their splits; experts are always split by
/// features, and need all tokens unless each rank routes its own.
void add_operators(UseList& list, int unit, const BlockPasses& passes) {
  const Plan& plan = list.plan();
  const BlockSplit split = plan.splits.of_unit(unit);
  add_region(list, passes, Cargo::attention, BlockPart::qkv, split.attention,
             plan.overlap.of_attention(split));
  add_gathers(list, passes, Cargo::attention, BlockPart::qkv, split.attention);
  if (split.attention == SplitBy::tokens) {
    add_head_exchange(list, passes, plan.local_of(unit));
  }
  if (!plan.model.has_experts(unit - 1)) {
    add_region(list, passes, Cargo::mlp, BlockPart::mlp, split.feed_forward,
               plan.overlap.of_mlp(split));
    add_gathers(list, passes, Cargo::mlp, BlockPart::mlp, split.feed_forward);
  } else if (experts_need_all(plan.model, plan.exchange.by_stream)) {
    add_region(list, passes, Cargo::experts, BlockPart::mlp);
    if (plan.model.shared_ffn > 0) add_gathers(list, passes, Cargo::experts, BlockPart::mlp);
  }
  list.add(layer_call(all_gather, Cargo::sliced_inputs, tensor_group), passes.sliced,
           list.stream_elements() * list.element());
}

}  // namespace

void BlockPasses::add_repeats(const BlockForm& form, std::int64_t count) {
  for (int number = 0; number < block_parts; ++number) {
    const auto part = static_cast<BlockPart>(number);
    if (form.repeats(part)) at(again, number) += count;
    if (form.gathered(part)) at(gathered, number) += count;
  }
  if (form.slices_input && form.repeats()) sliced += count;
}

BlockPasses BlockPasses::without_repeats() const {
  BlockPasses passes = *this;
  std::fill(std::begin(passes.again), std::end(passes.again), 0);
  passes.sliced = 0;
  return passes;
}

std::int64_t count_partial(const StagePlan& stage, int unit) {
  for (std::size_t chunk = 0; chunk < stage.forms.is_partial.size(); ++chunk) {
    if (!stage.units[chunk].holds(unit)) continue;
    const std::vector<char>& partial = stage.forms.is_partial[chunk];
    return std::count(partial.begin(), partial.end(), 1);
  }
  return 0;
}

BlockPasses passes_of(const Plan& plan, const StagePlan& stage, int unit) {
  const std::int64_t fewer = count_partial(stage, unit);
  BlockPasses passes{.once = plan.microbatches};
  passes.add_repeats(stage.forms.of(unit, true), fewer);
  passes.add_repeats(stage.forms.of(unit, false), plan.microbatches - fewer);
  return passes;
}

void add_block(UseList& list, int unit, const BlockPasses& passes) {
  if (list.plan().mesh.tp > 1) add_operators(list, unit, passes);
  add_context(list, unit, passes);
  if (list.plan().model.has_experts(unit - 1)) add_experts(list, passes);
}

}  // namespace trainctl
