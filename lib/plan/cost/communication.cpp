#include "plan/cost/communication.h"

#include <algorithm>
#include <optional>

#include "base/at.h"
#include "plan/cost/estimate.h"
#include "plan/model/ends.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

/// The operation of a collective, where it sends anything.
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

void UseList::add_total(const Call& call, std::int64_t count, std::int64_t bytes) {
  // A rank that has no part of a matrix takes part in their exchanges all the same.
  if (count == 0 || (bytes == 0 && call.cargo != Cargo::matrices)) return;
  const std::int64_t ranks = call.ranks > 0 ? call.ranks : ranks_of(call.group);
  if (ranks == 1) return;
  CollectiveUse made{call.operation, call.cargo,  call.purpose, call.group, ranks, 0, 0,
                     call.unit,      call.at_most};
  if (plan_.length_step > 0) {
    const bool of_layers = call.purpose == TrafficPurpose::layers;
    made.at_most = made.at_most || of_layers || call.purpose == TrafficPurpose::messages;
    made.fewer_calls = of_layers;
  }
  auto same = std::find_if(uses_.begin(), uses_.end(), [&](const CollectiveUse& use) {
    return use.operation == made.operation && use.cargo == made.cargo &&
           use.purpose == made.purpose && use.group == made.group;
  });
  if (same == uses_.end()) same = uses_.insert(same, made);
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
  add_total({*operation, one.cargo, TrafficPurpose::layers, tensor_group, 0, unit}, count * chunks,
            count * one.elements * size_of(type));
}

void UseList::call(const LayerCall& one, std::int64_t count, UnitKind unit) {
  add_total(
      {one.operation, one.cargo, TrafficPurpose::layers, one.group, one.ranks, unit, one.at_most},
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

}  // namespace

std::vector<CollectiveUse> estimate_communication(const Plan& plan, std::int64_t rank,
                                                  const StepNumbers& numbers) {
  const StagePlan& stage = plan.stage_of(rank);
  UseList list(plan, stage);
  any_block(stage.units, plan.model.layers, [&](int unit) {
    add_block(list, unit, passes_of(plan, stage, unit));
    return false;
  });
  if (list.holds(0)) add_embedding(list);
  if (list.holds(head_unit(plan.model.layers))) add_head(list);
  add_messages(list);
  add_state(list, rank, numbers);
  return list.take();
}

}  // namespace trainctl
