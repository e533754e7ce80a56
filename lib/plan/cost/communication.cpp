#include "plan/cost/communication.h"

#include <algorithm>

#include "base/at.h"
#include "base/round_up.h"
#include "plan/cost/estimate.h"
#include "plan/tables/groups.h"

namespace trainctl {

namespace {

/// The operation of a collective; "": none.
std::string_view word_for(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter_tokens:
    case Collective::reduce_scatter_features: return "reduce_scatter";
    case Collective::all_gather_tokens:
    case Collective::all_gather_features: return "all_gather";
    case Collective::all_to_all: return "all_to_all";
    default: return "";
  }
}

}  // namespace

UseList::Call UseList::layer_call(const std::string& operation, const std::string& what,
                                  const std::string& group, UnitKind unit) {
  return {operation, what, "layers", group, 0, unit};
}

void UseList::add_total(const Call& call, std::int64_t count, std::int64_t bytes) {
  if (count == 0 || bytes == 0) return;
  const std::int64_t ranks = call.ranks > 0 ? call.ranks : ranks_of(call.group);
  if (ranks == 1) return;
  CollectiveUse made{call.operation, call.what,   call.purpose, call.group, ranks, 0, 0,
                     call.unit,      call.at_most};
  if (plan_.length_step > 0) {
    const bool of_layers = call.purpose == "layers";
    made.at_most = made.at_most || of_layers || call.purpose == "messages";
    made.fewer_calls = of_layers;
  }
  auto same = std::find_if(uses_.begin(), uses_.end(), [&](const CollectiveUse& use) {
    return use.operation == made.operation && use.what == made.what &&
           use.purpose == made.purpose && use.group == made.group;
  });
  if (same == uses_.end()) same = uses_.insert(same, made);
  same->count += count;
  same->bytes += bytes;
}

std::int64_t UseList::ranks_of(const std::string& group) const {
  if (group == "world") return plan_.mesh.world_size();
  if (group.starts_with("kv")) {
    std::int64_t copies = 1;
    for (const ParamSpec& row : stage_.parameters) copies = std::max(copies, row.tp_copies);
    return group == "kv" ? copies : copies * ranks_of(group.substr(3));
  }
  return group_size(plan_.mesh, group);
}

void UseList::reshard(Layout from, Layout to, const Region& region, std::int64_t count) {
  const Collective collective = transition(from, to).value_or(Collective::none);
  const bool wide = from == Layout::partial && plan_.fp32_sums;
  const std::string word(word_for(collective));
  if (word.empty()) return;
  const std::int64_t bytes = region.bytes > 0 ? region.bytes : wide ? fp32_bytes : element();
  const std::int64_t chunks = region.chunked ? row_chunks(plan_.local.stream_rows) : 1;
  add_total(layer_call(word, region.what, "tp", region.unit), count * chunks,
            count * region.elements * bytes);
}

namespace {

void add_vocabulary(UseList& list) {
  const Plan& plan = list.plan();
  const UseList::Region embedding{"embedding", UnitKind::embedding, list.stream_elements()};
  const UseList::Region head{"head", UnitKind::head, list.stream_elements()};
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
  list.add_total(UseList::layer_call("all_gather", "head statistics", "tp", UnitKind::head),
                 count * chunks, count * 3 * plan.mesh.tp * rows * fp32_bytes);
}

void add_messages(UseList& list) {
  const Plan& plan = list.plan();
  if (plan.mesh.pp == 1) return;
  const std::int64_t bytes =
      plan.local.stream_rows * plan.model.hidden * size_of(plan.message_dtype);
  const ChunkPlaces places = plan.map.places();
  const int stage = static_cast<int>(&list.stage() - plan.stages.data());
  for (int chunk = 0; chunk < places.chunks; ++chunk) {
    if (places.sends(stage, chunk)) {
      list.add({"send", "activations", "messages", "pp"}, plan.microbatches, bytes);
      list.add({"receive", "gradients", "messages", "pp"}, plan.microbatches, bytes);
    }
    if (places.receives(stage, chunk)) {
      list.add({"receive", "activations", "messages", "pp"}, plan.microbatches, bytes);
      list.add({"send", "gradients", "messages", "pp"}, plan.microbatches, bytes);
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
