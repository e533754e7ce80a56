#include "plan/cost/communication.h"

#include <algorithm>
#include <optional>

#include "base/at.h"
#include "plan/cost/estimate.h"
#include "plan/gradients/buckets.h"
#include "plan/gradients/gathers.h"
#include "plan/model/attention.h"
#include "plan/model/block.h"
#include "plan/model/ends.h"
#include "plan/model/experts.h"
#include "plan/ownership/matrix_exchange.h"
#include "plan/ownership/ownership.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

/// The operation that a collective needs; nullopt if it sends nothing.
std::optional<GroupOperation> operation_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return GroupOperation::all_reduce;
    case Collective::reduce_scatter_tokens:
    case Collective::reduce_scatter_features: return GroupOperation::reduce_scatter;
    case Collective::all_gather_tokens:
    case Collective::all_gather_features: return GroupOperation::all_gather;
    case Collective::all_to_all: return GroupOperation::all_to_all;
    default: return std::nullopt;
  }
}

}  // namespace

void UseList::add_total(CollectiveUse call, std::int64_t count, std::int64_t bytes) {
  // The exchange of matrices includes ranks that have no part of a matrix.
  if (count == 0 || (bytes == 0 && call.cargo != Cargo::matrices)) return;
  if (call.ranks == 0) call.ranks = ranks_of(call.group);
  if (call.ranks == 1) return;
  if (plan_.length_step > 0) {
    const bool of_layers = call.purpose == TrafficPurpose::layers;
    call.at_most = call.at_most || of_layers || call.purpose == TrafficPurpose::messages;
    call.fewer_calls = of_layers;
  }
  auto same = std::find_if(uses_.begin(), uses_.end(), [&](const CollectiveUse& use) {
    return use.operation == call.operation && use.cargo == call.cargo &&
           use.purpose == call.purpose && use.group == call.group;
  });
  if (same == uses_.end()) same = uses_.insert(same, call);
  same->count += count;
  same->bytes += bytes;
}

std::int64_t UseList::ranks_of(GroupKind group) const {
  const std::int64_t ranks = group_size(plan_.mesh, group);
  if (!group.shares_keys) return ranks;
  std::int64_t copies = 1;
  for (const ParamSpec& row : stage_.parameters) copies = std::max(copies, row.tp_copies);
  return ranks / plan_.mesh.tp * copies;
}

void UseList::exchange(const Exchange& one, bool back, bool chunked, std::int64_t count,
                       UnitKind unit) {
  const Layout from = back ? dual(one.to) : one.from;
  const Layout to = back ? dual(one.from) : one.to;
  const auto operation = operation_of(transition(from, to).value_or(Collective::none));
  if (!operation) return;
  const bool summed = from == Layout::partial && plan_.fp32_sums;
  const DType type = one.type.value_or(summed ? DType::f32 : plan_.compute);
  const std::int64_t chunks = chunked ? row_chunks(plan_.local.stream_rows) : 1;
  add_total({.operation = *operation, .cargo = one.cargo, .group = tensor_group, .unit = unit},
            count * chunks, count * one.elements * size_of(type));
}

void UseList::call(const LayerCall& one, std::int64_t count, UnitKind unit) {
  add_total({.operation = one.operation,
             .cargo = one.cargo,
             .group = one.group,
             .ranks = one.ranks,
             .unit = unit,
             .at_most = one.at_most},
            count * one.count * one.chunks, count * one.count * one.bytes());
}

namespace {

void add_embedding(UseList& list) {
  const Plan& plan = list.plan();
  const Exchange leave =
      embedding_exchange(plan.stream(), plan.splits.embedding, list.stream_elements());
  for (const bool back : {false, true}) {
    list.exchange(leave, back, false, plan.microbatches, UnitKind::embedding);
  }
}

void add_head(UseList& list) {
  const Plan& plan = list.plan();
  const Exchange enter = head_exchange(plan.stream(), plan.splits.head, list.stream_elements());
  const std::int64_t deferred = enter.again_in_weight ? list.stage().deferral.microbatches : 0;
  list.exchange(enter, false, false, plan.microbatches + deferred, UnitKind::head);
  list.exchange(enter, true, false, plan.microbatches, UnitKind::head);
  for (const LayerCall& one :
       head_calls(plan.local, plan.head_tokens, plan.mesh.tp, plan.splits.head)) {
    list.call(one, plan.microbatches, UnitKind::head);
  }
}

void add_messages(UseList& list) {
  const Plan& plan = list.plan();
  if (plan.mesh.pp == 1) return;
  const std::int64_t bytes =
      plan.local.stream_rows * plan.model.hidden * size_of(plan.message_dtype);
  const auto add = [&](GroupOperation operation, Cargo cargo) {
    list.add({operation, cargo, TrafficPurpose::messages, pipeline_group}, plan.microbatches,
             bytes);
  };
  const ChunkPlaces places = plan.map.places();
  const int stage = static_cast<int>(&list.stage() - plan.stages.data());
  for (int chunk = 0; chunk < places.chunks; ++chunk) {
    if (places.sends(stage, chunk)) {
      add(GroupOperation::send, Cargo::activations);
      add(GroupOperation::receive, Cargo::gradients);
    }
    if (places.receives(stage, chunk)) {
      add(GroupOperation::receive, Cargo::activations);
      add(GroupOperation::send, Cargo::gradients);
    }
  }
}

/// Adds the exchanges in F, those of B from last to first, and in W the repeated gathers.
void add_exchanges(UseList& list, const BlockPasses& passes, const Exchanges& exchanges) {
  for (const Exchange& one : exchanges) {
    const std::int64_t count = !one.part   ? passes.once
                               : one.stays ? passes.gathers(*one.part)
                                           : passes.of(*one.part);
    list.exchange(one, false, one.forward_chunks, count);
  }
  for (auto one = exchanges.rbegin(); one != exchanges.rend(); ++one) {
    list.exchange(*one, true, one->backward_chunks, passes.once);
  }
  for (const Exchange& one : exchanges) {
    if (one.again_in_weight) list.exchange(one, false, false, passes.weight_gathers(*one.part));
  }
}

void add_calls(UseList& list, const BlockPasses& passes, const LayerCalls& calls) {
  for (const LayerCall& one : calls) list.call(one, one.part ? passes.of(*one.part) : passes.once);
}

}  // namespace

void BlockPasses::add_repeats(const BlockForm& form, std::int64_t count) {
  for (int number = 0; number < block_parts; ++number) {
    const auto part = static_cast<BlockPart>(number);
    if (form.repeats(part)) at(repeated, number) += count;
    if (form.gathered(part)) at(gathered, number) += count;
  }
  if (form.slices_input && form.repeats()) sliced += count;
}

BlockPasses BlockPasses::without_repeats() const {
  BlockPasses passes = *this;
  std::fill(std::begin(passes.repeated), std::end(passes.repeated), 0);
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
  const LayerForm form = list.plan().form_of(unit);
  const LayerShare share = list.plan().share_of(unit);
  add_exchanges(list, passes, attention_exchanges(form, share));
  add_calls(list, passes, attention_norm_calls(form, share));
  add_calls(list, passes, attention_head_calls(share));
  add_exchanges(list, passes, feed_forward_exchanges(form, share));
  list.call(sliced_input_call(form, share), passes.sliced);
  add_calls(list, passes, attention_context_calls(share));
  if (!form.has_experts()) return;
  for (const Exchange& one : router_exchanges(form, share)) add_exchanges(list, passes, {one});
  add_calls(list, passes, router_calls(form, share));
  add_calls(list, passes, expert_part_calls(form, share));
  add_calls(list, passes, expert_row_calls(form, share));
}

namespace {

using enum GroupOperation;

constexpr std::int64_t sum_bytes = 4;

/// Adds the sums of a bucket's gradients over ranks with the same parameters: of the whole bucket,
/// or of rows grouped by their routes.
void add_sums(UseList& list, const OwnershipTable& table, int number, GroupKind group) {
  const Plan& plan = list.plan();
  const Bucket& bucket = at(list.stage().flat.buckets, number);
  const ShardKind kind = at(list.stage().shards, bucket.parameters.front()).kind;
  const std::int64_t count = visits_of(list.stage(), ActionKind::reduce, number);
  if (kind != ShardKind::rows) {
    const GroupOperation operation = kind == ShardKind::bucket ? reduce_scatter : all_reduce;
    return list.add({operation, Cargo::gradients, TrafficPurpose::gradients, group}, count,
                    bucket.length * list.gradient());
  }
  const bool fused = fuses_rows(plan.gradient.buckets);
  for (const std::vector<int>& exchange : row_exchanges(table, bucket.parameters, fused)) {
    const ShardRoute& route = table.route_of(exchange.front());
    std::int64_t scattered = 0, summed = 0;
    for (const int index : exchange) {
      const Ownership& own = at(table.parameters, index);
      scattered += own.scattered.length() * list.gradient();
      summed += own.summed.length() * list.gradient();
    }
    list.add({reduce_scatter, Cargo::gradients, TrafficPurpose::gradients, route.scatter_kind,
              std::ssize(route.scatter)},
             count, scattered);
    list.add({all_reduce, Cargo::gradient_slices, TrafficPurpose::gradients, route.mirror_kind,
              std::ssize(route.mirror)},
             count, summed);
  }
}

/// Adds the gather of a block of parameters from the ranks that updated them.
void add_gather(UseList& list, const OwnershipTable& table, int number, GroupKind group) {
  const Plan& plan = list.plan();
  const StagePlan& stage = list.stage();
  const GatherBlock& block = at(stage.gathers, number);
  const std::int64_t count = visits_of(stage, ActionKind::gather, number);
  const auto bytes_of = [&](int index) {
    const ParamSpec& row = at(stage.parameters, index);
    return row.shape.numel() * size_of(read_type(row, plan.compute));
  };
  if (block.bucket >= 0) {
    const CollectiveUse call{all_gather, Cargo::parameters, TrafficPurpose::parameters, group};
    const std::int64_t ranks = at(stage.shards, block.parameters.front()).ranks;
    const std::int64_t length = at(stage.flat.buckets, block.bucket).length;
    list.add(call, count, length * size_of(plan.compute));
    return list.add(call, count, ranks * max_apart(plan.compute, stage, block, ranks) * sum_bytes);
  }
  for (const int index : block.parameters) {
    const OptimizerShard& shard = at(stage.shards, index);
    if (shard.kind != ShardKind::dealt) continue;
    const GroupKind over = replicas_kind(plan.mesh, at(stage.parameters, index).expert);
    list.add({broadcast, Cargo::parameters, TrafficPurpose::parameters, over}, count,
             bytes_of(index));
  }
  for (const std::vector<int>& exchange : row_gathers(plan, stage, table, block)) {
    const ShardRoute& route = table.route_of(exchange.front());
    std::int64_t bytes = 0;
    for (const int index : exchange) bytes += bytes_of(index);
    list.add({all_gather, Cargo::parameters, TrafficPurpose::parameters, route.gather_kind,
              std::ssize(route.gather)},
             count, bytes);
  }
}

/// Adds the exchanges between ranks with the same parameters.
void add_replicas(UseList& list, const OwnershipTable& table) {
  const StagePlan& stage = list.stage();
  const auto group = [&](bool expert) { return replicas_kind(list.plan().mesh, expert); };
  for (int bucket = 0; bucket < std::ssize(stage.flat.buckets); ++bucket) {
    add_sums(list, table, bucket, group(at(stage.flat.buckets, bucket).expert));
  }
  for (int block = 0; block < std::ssize(stage.gathers); ++block) {
    const int first = at(stage.gathers, block).parameters.front();
    add_gather(list, table, block, group(at(stage.parameters, first).expert));
  }
}

/// Adds the sums of gradients that are partial on ranks with different shards, bucket by bucket.
/// For a tied embedding, a rank sums the part that its bucket's sum completed, in the kept dtype
/// unless it is sent in another.
void add_shared_gradients(UseList& list, const OwnershipTable& table) {
  const GradientRule& rule = list.plan().gradient;
  const std::int64_t completed = size_of(rule.dtype == DType::f32 ? rule.kept : rule.dtype);
  for (int number = 0; number < std::ssize(list.stage().flat.buckets); ++number) {
    const Bucket& bucket = at(list.stage().flat.buckets, number);
    const std::int64_t count = visits_of(list.stage(), ActionKind::reduce, number);
    const auto partial = [&](bool copies) {
      return partial_elements(list.stage().parameters, bucket, copies) * list.gradient();
    };
    const auto add = [&](Cargo cargo, GroupKind group, std::int64_t calls, std::int64_t bytes) {
      list.add({all_reduce, cargo, TrafficPurpose::gradients, group}, calls, bytes);
    };
    add(Cargo::replicated_gradients, tensor_group, count, partial(false));
    add(Cargo::shared_keys, shared_keys_group, count, partial(true));
    for (const int index : bucket.parameters) {
      const ParamSpec& row = at(list.stage().parameters, index);
      if (!row.two_homes) continue;
      add(Cargo::tied_embedding, embedding_kind, 1,
          at(table.parameters, index).summed.length() * completed);
    }
  }
}

/// Adds an all-gather of a few numbers of every rank.
void add_numbers(UseList& list, Cargo cargo, std::int64_t numbers, std::int64_t count = 1) {
  const std::int64_t ranks = list.plan().mesh.world_size();
  list.add({all_gather, cargo, TrafficPurpose::scalars, world_group}, count, ranks * numbers * 8);
}

void add_pairs(UseList& list, Cargo cargo, std::int64_t count = 1) {
  add_numbers(list, cargo, 2, count);
}

/// Adds the scalars of a step: the loss with the request to stop; the weights that divide the loss,
/// with other counts of the batch; the squares of gradients, separately for the norm and for values
/// that are only reported. They are gathered, and every rank adds them in the same order.
void add_scalars(UseList& list, const StepNumbers& numbers) {
  add_pairs(list, Cargo::loss);
  // With full_batch every rank knows all weights.
  if (numbers.loss_weights && !list.plan().full_batch) add_numbers(list, Cargo::loss_weights, 4);
  add_pairs(list, Cargo::gradient_norm);
  const ModelShape& model = list.plan().model;
  if (model.experts > 1) {
    constexpr std::int64_t others = 4;  // number of sums without expert loads: ops/router.h
    list.add({all_reduce, Cargo::router_statistics, TrafficPurpose::scalars, world_group}, 1,
             model.layers * (others + model.experts) * sum_bytes);
  }
  if (numbers.attention_logit) add_pairs(list, Cargo::attention_logit);
  if (numbers.qk_clip) {
    constexpr std::int64_t score_bytes = 4;
    const std::int64_t ranks = list.plan().mesh.world_size();
    list.add({all_gather, Cargo::attention_scores, TrafficPurpose::scalars, world_group}, 1,
             ranks * scores_of_rank(list.plan()) * score_bytes);
  }
  // Barriers before the passes, the completion of gradients, and the optimizer.
  if (numbers.timer_barriers) add_pairs(list, Cargo::timer_barriers, 3);
}

/// Gradients, parameters and scalars of a rank of the stage.
void add_state(UseList& list, std::int64_t rank, const StepNumbers& numbers) {
  const OwnershipTable table = make_ownership(list.plan(), rank);
  add_replicas(list, table);
  add_shared_gradients(list, table);
  const std::vector<MatrixRound> rounds = matrix_rounds(list.plan(), rank);
  list.add_total({all_to_all, Cargo::matrices, TrafficPurpose::parameters, stage_group},
                 2 * std::ssize(rounds), sent_bytes(list.plan(), rounds));
  add_scalars(list, numbers);
}

}  // namespace

std::vector<CollectiveUse> estimate_communication(const Plan& plan, std::int64_t rank,
                                                  const StepNumbers& numbers) {
  const StagePlan& stage = plan.stage_of(rank);
  UseList list(plan, stage);
  for (const int unit : blocks_of(stage.units, plan.model.layers)) {
    add_block(list, unit, passes_of(plan, stage, unit));
  }
  if (list.holds(0)) add_embedding(list);
  if (list.holds(head_unit(plan.model.layers))) add_head(list);
  add_messages(list);
  add_state(list, rank, numbers);
  return list.take();
}

}  // namespace trainctl
