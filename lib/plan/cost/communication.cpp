#include "plan/cost/communication.h"

#include <algorithm>

#include "base/at.h"
#include "plan/cost/estimate.h"
#include "plan/tables/groups.h"

namespace trainctl {

namespace {

constexpr std::int64_t fp32 = 4;

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

/// Of the layers, over `group`.
UseList::Call layer_call(const std::string& operation, const std::string& what,
                         const std::string& group, UnitKind unit = UnitKind::block) {
  return {operation, what, "layers", group, 0, unit};
}

}  // namespace

void UseList::add_total(const Call& call, std::int64_t count, std::int64_t bytes) {
  if (count == 0 || bytes == 0) return;
  const std::int64_t ranks = call.ranks > 0 ? call.ranks : ranks_of(call.group);
  if (ranks == 1) return;
  const CollectiveUse made{call.operation, call.what, call.purpose, call.group, ranks, 0, 0,
                           call.unit};
  auto same = std::find_if(uses_.begin(), uses_.end(), [&](const CollectiveUse& use) {
    return use.name() == made.name() && use.group_name() == made.group_name();
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
  add(layer_call(word, region.what, "tp", region.unit), count,
      region.elements * (wide ? fp32 : element()));
}

namespace {

/// Passes through the stage's blocks in a step of which `counts` holds, by the form of the block
/// for the micro-batch.
template <class Counts>
std::int64_t count_passes(const UseList& list, const Counts& counts) {
  const StagePlan& stage = list.stage();
  std::int64_t count = 0;
  for (int chunk = 0; chunk < static_cast<int>(std::ssize(stage.units)); ++chunk) {
    const UnitRange blocks = blocks_in(at(stage.units, chunk), list.plan().model.layers);
    const auto& partial = stage.forms.is_partial;
    const std::int64_t fewer =
        partial.empty() ? 0 : std::count(at(partial, chunk).begin(), at(partial, chunk).end(), 1);
    for (int unit = blocks.begin; unit < blocks.end; ++unit) {
      if (counts(stage.forms.of(unit, true))) count += fewer;
      if (counts(stage.forms.of(unit, false))) count += list.plan().microbatches - fewer;
    }
  }
  return count;
}

/// How often the forward and the backward of the stage's blocks run in a step. Parts of the forward
/// may run again.
struct Passes {
  std::int64_t once = 0;
  std::int64_t again[block_parts] = {};
  std::int64_t of(BlockPart part) const { return once + at(again, part); }
};

Passes passes_of(const UseList& list) {
  Passes passes;
  passes.once = count_passes(list, [](const BlockForm&) { return true; });
  for (int part = 0; part < block_parts; ++part) {
    at(passes.again, part) = count_passes(
        list, [part](const BlockForm& form) { return form.repeats(static_cast<BlockPart>(part)); });
  }
  return passes;
}

/// A region between enter (stream -> replicated) and leave (partial -> stream), and their duals. A
/// weight gradient needs its gathered input once more, unless that is kept. `first` is the part
/// that begins with the region's first product; the last product of the MLP is never repeated.
void add_region(UseList& list, const Passes& passes, const std::string& what, BlockPart first) {
  const UseList::Region region{what, UnitKind::block, list.stream_elements()};
  const Layout stream = list.stream();
  const std::int64_t kept =
      count_passes(list, [first](const BlockForm& form) { return form.gathered(first); });
  const bool last = first == BlockPart::mlp;
  list.reshard(stream, Layout::replicated, region, passes.of(first) - kept);
  list.reshard(Layout::partial, stream, region,
               last ? passes.once : passes.of(BlockPart::projection));
  list.reshard(dual(stream), dual(Layout::partial), region, passes.once);
  list.reshard(dual(Layout::replicated), dual(stream), region, passes.once);
  if (stream == Layout::tokens) {
    list.reshard(stream, Layout::replicated, region, passes.once - kept);
  }
}

/// Inputs of repeated blocks that tensor-parallel ranks share.
void add_slices(UseList& list) {
  const std::int64_t gathers =
      count_passes(list, [](const BlockForm& form) { return form.slices_input && form.repeats(); });
  list.add(layer_call("all_gather", "sliced inputs", "tp"), gathers,
           list.stream_elements() * list.element());
}

void add_vocabulary(UseList& list) {
  const Plan& plan = list.plan();
  if (!plan.split_vocabulary) return;
  const UseList::Region embedding{"embedding", UnitKind::embedding, list.stream_elements()};
  const UseList::Region head{"head", UnitKind::head, list.stream_elements()};
  const Layout stream = list.stream();
  const std::int64_t count = plan.microbatches;
  if (list.holds(0)) {
    list.reshard(Layout::partial, stream, embedding, count);
    list.reshard(dual(stream), dual(Layout::partial), embedding, count);
  }
  if (!list.holds(head_unit(plan.model.layers))) return;
  // Where its weight gradient is deferred, once more for it.
  list.reshard(stream, Layout::replicated, head, count + list.stage().deferral.microbatches);
  list.reshard(dual(Layout::replicated), dual(stream), head, count);
  // Of each token the largest logit, the sum of exponentials and the label's logit, for each chunk
  // of the head.
  const std::int64_t rows = plan.local.head_rows;
  const std::int64_t chunk =
      plan.model.whole_logits ? rows : head_chunk(plan.local.vocabulary, rows, plan.compute);
  const std::int64_t chunks = (rows + chunk - 1) / chunk;
  list.add_total(layer_call("all_gather", "head statistics", "tp", UnitKind::head), count * chunks,
                 count * 3 * plan.mesh.tp * rows * fp32);
}

/// Keys and values around a ring, each in two messages: of the next rank while this rank works on
/// its own; in backward their gradients follow them.
void add_ring(UseList& list, const Passes& passes) {
  const Plan& plan = list.plan();
  const std::int64_t bytes = plan.local.tokens * plan.local.kv * list.element();
  const std::int64_t hops = plan.context.ring - 1;
  const std::int64_t count = 2 * hops * (passes.of(BlockPart::attention) + 2 * passes.once);
  for (const char* operation : {"send", "receive"}) {
    UseList::Call call = layer_call(operation, "keys and values", ring_kind(plan.context));
    call.ranks = plan.context.ring;
    list.add(call, count, bytes);
  }
}

/// Tokens for heads: queries, keys and values there, the result back, and the duals in backward.
void add_heads(UseList& list, const Passes& passes) {
  const Plan& plan = list.plan();
  const std::int64_t q = plan.local.tokens * plan.local.q * list.element();
  const std::int64_t kv = plan.local.tokens * plan.local.kv * list.element();
  const std::int64_t forward = passes.of(BlockPart::qkv);
  UseList::Call call = layer_call("all_to_all", "heads", heads_kind(plan.context));
  call.ranks = plan.context.heads;
  list.add(call, forward + passes.of(BlockPart::attention) + 2 * passes.once, q);
  list.add(call, 2 * (forward + passes.once), kv);
}

/// Keys and values, once more in backward, and their gradients.
void add_gathers(UseList& list, const Passes& passes) {
  const Plan& plan = list.plan();
  const std::int64_t all = plan.context.gather * plan.local.tokens * plan.local.kv * list.element();
  list.add(layer_call("all_gather", "keys and values", "cp"),
           2 * (passes.of(BlockPart::attention) + passes.once), all);
  list.add(layer_call("reduce_scatter", "keys and values", "cp"), 2 * passes.once, all);
}

void add_context(UseList& list, const Passes& passes) {
  const ContextSplit& split = list.plan().context;
  if (split.heads > 1) add_heads(list, passes);
  if (split.ring > 1) add_ring(list, passes);
  if (split.gather > 1) add_gathers(list, passes);
}

/// Tokens to their experts and back, and the same for the gradients.
void add_experts(UseList& list, const Passes& passes) {
  const Plan& plan = list.plan();
  const ModelShape& model = plan.model;
  if (model.experts == 1) return;
  const std::int64_t slots = model.experts * plan.local.capacity;
  const std::int64_t bytes = slots * model.hidden * list.element();
  const std::int64_t count = 2 * (passes.of(BlockPart::mlp) + passes.once);
  if (plan.mesh.ep > 1) {
    // Without an all-to-all every rank gathers all slots and takes its experts' share.
    const bool direct = list.config().parallel.enable_alltoall;
    list.add(layer_call(direct ? "all_to_all" : "all_gather", "experts", "expert:ep"), count,
             direct ? bytes : bytes * plan.mesh.ep);
  }
  if (plan.mesh.etp == 1) return;
  list.add(layer_call("all_gather", "expert slots", "expert:tp"), count / 2, bytes * plan.mesh.etp);
  list.add(layer_call("reduce_scatter", "expert slots", "expert:tp"), count / 2,
           bytes * plan.mesh.etp);
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
  UseList list(plan, rank, config);
  const Passes passes = passes_of(list);
  if (plan.mesh.tp > 1) {
    add_region(list, passes, "attention", BlockPart::qkv);
    if (plan.model.experts == 1) add_region(list, passes, "mlp", BlockPart::mlp);
    add_slices(list);
    add_vocabulary(list);
  }
  add_context(list, passes);
  add_experts(list, passes);
  add_messages(list);
  add_state(list);
  return list.take();
}

}  // namespace trainctl
