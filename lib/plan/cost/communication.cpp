#include "plan/cost/communication.h"

#include <algorithm>
#include <optional>

#include "base/at.h"
#include "base/round_up.h"
#include "plan/cost/estimate.h"
#include "plan/tables/groups.h"

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

UseList::Call UseList::layer_call(GroupOperation operation, Cargo cargo, GroupKind group,
                                  UnitKind unit) {
  return {operation, cargo, TrafficPurpose::layers, group, 0, unit};
}

void UseList::add_total(const Call& call, std::int64_t count, std::int64_t bytes) {
  if (count == 0 || bytes == 0) return;
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

void UseList::reshard(Layout from, Layout to, const Region& region, std::int64_t count) {
  const Collective collective = transition(from, to).value_or(Collective::none);
  const bool wide = from == Layout::partial && plan_.fp32_sums;
  const std::optional<GroupOperation> operation = operation_of(collective);
  if (!operation) return;
  const std::int64_t bytes = region.bytes > 0 ? region.bytes : wide ? fp32_bytes : element();
  const std::int64_t chunks = region.chunked ? row_chunks(plan_.local.stream_rows) : 1;
  add_total(layer_call(*operation, region.cargo, tensor_group, region.unit), count * chunks,
            count * region.elements * bytes);
}

namespace {

void add_vocabulary(UseList& list) {
  const Plan& plan = list.plan();
  const UseList::Region embedding{Cargo::embedding, UnitKind::embedding, list.stream_elements()};
  const UseList::Region head{Cargo::head, UnitKind::head, list.stream_elements()};
  const Layout stream = list.stream();
  const std::int64_t count = plan.microbatches;
  if (list.holds(0)) {
    const Layout makes = inside_of(plan.splits.embedding).makes;
    list.reshard(makes, stream, embedding, count);
    list.reshard(dual(stream), dual(makes), embedding, count);
  }
  if (!list.holds(head_unit(plan.model.layers))) return;
  // Where its weight gradient is deferred, once more for it.
  const Layout reads = inside_of(plan.splits.head).reads;
  list.reshard(stream, reads, head, count + list.stage().deferral.microbatches);
  list.reshard(dual(reads), dual(stream), head, count);
  if (plan.splits.head != SplitBy::features) return;
  // Of each token the largest logit, the sum of exponentials and the label's logit, for each chunk
  // of the head.
  const std::int64_t rows = plan.local.head_rows;
  const std::int64_t chunks = divide_up(rows, plan.head_tokens);
  list.add_total(UseList::layer_call(GroupOperation::all_gather, Cargo::head_statistics,
                                     tensor_group, UnitKind::head),
                 count * chunks, count * 3 * plan.mesh.tp * rows * fp32_bytes);
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
                                                  const Config& config) {
  const StagePlan& stage = plan.stage_of(rank);
  UseList list(plan, stage);
  any_block(stage.units, plan.model.layers, [&](int unit) {
    add_block(list, unit, passes_of(plan, stage, unit));
    return false;
  });
  if (plan.mesh.tp > 1) add_vocabulary(list);
  add_messages(list);
  add_state(list, rank, config);
  return list.take();
}

}  // namespace trainctl
