#include "plan/cost/communication.h"

#include <algorithm>

#include "base/at.h"
#include "base/round_up.h"
#include "plan/cost/estimate.h"
#include "plan/cost/expert_overlap.h"
#include "plan/tables/groups.h"

namespace trainctl {

namespace {

constexpr std::int64_t fp32 = 4;
constexpr std::int64_t counted_as = 8;  // bytes of a number of rows

}  // namespace

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

HeadExchange head_exchange(const Plan& plan, const LocalShape& local) {
  const std::int64_t parts = plan.splits.moves_at_once ? 1 : local.head_ranks;
  const std::int64_t bytes = local.attention_rows * parts * size_of(plan.compute);
  return {plan.splits.moves_at_once ? "all_to_all" : "all_gather", bytes * local.q,
          bytes * local.kv};
}

namespace {

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
  CollectiveUse made{call.operation, call.what,   call.purpose, call.group, ranks, 0, 0,
                     call.unit,      call.at_most};
  if (plan_.length_step > 0) {
    const bool of_layers = call.purpose == "layers";
    made.at_most = made.at_most || of_layers || call.purpose == "messages";
    made.fewer_calls = of_layers;
  }
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
  const std::int64_t bytes = region.bytes > 0 ? region.bytes : wide ? fp32 : element();
  const std::int64_t chunks = region.chunked ? row_chunks(plan_.local.stream_rows) : 1;
  add_total(layer_call(word, region.what, "tp", region.unit), count * chunks,
            count * region.elements * bytes);
}

namespace {

/// Passes through those blocks of the stage in a step of which `counts` holds, by unit and the form
/// of the block for the micro-batch.
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
      if (counts(unit, stage.forms.of(unit, true))) count += fewer;
      if (counts(unit, stage.forms.of(unit, false))) count += list.plan().microbatches - fewer;
    }
  }
  return count;
}

/// How often the forward and the backward of some of the stage's blocks run in a step. Parts of the
/// forward may run again.
struct Passes {
  std::int64_t once = 0;
  std::int64_t again[block_parts] = {};
  std::int64_t gathered[block_parts] = {};  // the part's gathered input is kept
  std::int64_t of(BlockPart part) const { return once + at(again, part); }
  std::int64_t kept(BlockPart part) const { return at(gathered, part); }
};

template <class Counted>
Passes passes_of(const UseList& list, const Counted& counted) {
  Passes passes;
  passes.once = count_passes(list, [&](int unit, const BlockForm&) { return counted(unit); });
  for (int number = 0; number < block_parts; ++number) {
    const auto part = static_cast<BlockPart>(number);
    at(passes.again, number) = count_passes(
        list, [&](int unit, const BlockForm& form) { return counted(unit) && form.repeats(part); });
    at(passes.gathered, number) = count_passes(list, [&](int unit, const BlockForm& form) {
      return counted(unit) && form.gathered(part);
    });
  }
  return passes;
}

/// Passes through blocks with experts.
Passes expert_passes(const UseList& list) {
  return passes_of(list, [&](int unit) { return list.plan().model.has_experts(unit - 1); });
}

/// A region between enter (from the stream) and leave (to it), and their duals. `first` is the part
/// that begins with the region's first product; the last product of the MLP is never repeated.
void add_region(UseList& list, const Passes& passes, const std::string& what, BlockPart first,
                SplitBy split = SplitBy::features, const RegionOverlap& overlap = {}) {
  const Inside inside = inside_of(split);
  const auto region = [&](bool chunked) {
    return UseList::Region{what, UnitKind::block, list.stream_elements(), 0, chunked};
  };
  const Layout stream = list.stream();
  const bool last = first == BlockPart::mlp;
  list.reshard(stream, inside.reads, region(overlap.gather), passes.of(first) - passes.kept(first));
  list.reshard(inside.makes, stream, region(overlap.scatter),
               last ? passes.once : passes.of(BlockPart::projection));
  list.reshard(dual(stream), dual(inside.makes), region(overlap.gather_back), passes.once);
  list.reshard(dual(inside.reads), dual(stream), region(overlap.scatter_back), passes.once);
}

/// A weight gradient needs its gathered input once more, unless that is kept.
void add_gathers(UseList& list, const Passes& passes, const std::string& what, BlockPart first,
                 SplitBy split = SplitBy::features) {
  if (!gathers(list.stream(), split)) return;
  const UseList::Region region{what, UnitKind::block, list.stream_elements()};
  list.reshard(list.stream(), inside_of(split).reads, region, passes.once - passes.kept(first));
}

/// Tokens for heads where attention is split by tokens: queries, keys and values there, the result
/// back, and the duals in backward.
void add_head_exchange(UseList& list, const Passes& passes) {
  const Plan& plan = list.plan();
  LocalShapeInput input{plan.model, plan.mesh, plan.micro_batch_size};
  input.block.attention = SplitBy::tokens;
  const HeadExchange exchange = head_exchange(plan, local_shape(input));
  const UseList::Call call = layer_call(exchange.operation, "heads", "tp");
  const std::int64_t forward = passes.of(BlockPart::qkv);
  list.add(call, forward + passes.of(BlockPart::attention) + 2 * passes.once, exchange.q);
  list.add(call, 2 * (forward + passes.once), exchange.kv);
}

/// What the operators of blocks exchange, by their splits.
void add_blocks(UseList& list) {
  const Plan& plan = list.plan();
  for (const SplitBy split : all_splits) {
    const Passes attention =
        passes_of(list, [&](int unit) { return plan.splits.of_unit(unit).attention == split; });
    const Passes mlp = passes_of(list, [&](int unit) {
      return !plan.model.has_experts(unit - 1) && plan.splits.of_unit(unit).feed_forward == split;
    });
    const BlockSplit both{split, split};
    add_region(list, attention, "attention", BlockPart::qkv, split,
               plan.overlap.of_attention(both));
    add_gathers(list, attention, "attention", BlockPart::qkv, split);
    if (split == SplitBy::tokens) add_head_exchange(list, attention);
    add_region(list, mlp, "mlp", BlockPart::mlp, split, plan.overlap.of_mlp(both));
    add_gathers(list, mlp, "mlp", BlockPart::mlp, split);
  }
}

/// Inputs of repeated blocks that tensor-parallel ranks share.
void add_slices(UseList& list) {
  const std::int64_t gathers = count_passes(
      list, [](int, const BlockForm& form) { return form.slices_input && form.repeats(); });
  list.add(layer_call("all_gather", "sliced inputs", "tp"), gathers,
           list.stream_elements() * list.element());
}

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
  list.add_total(layer_call("all_gather", "head statistics", "tp", UnitKind::head), count * chunks,
                 count * 3 * plan.mesh.tp * rows * fp32);
}

/// Features of the keys that attention has, after tensor-parallel ranks have exchanged heads.
std::int64_t attended_kv(const LocalShape& local) { return local.kv / local.head_ranks; }

/// Keys and values around a ring, each in two messages: of the next rank while this rank works on
/// its own; in backward their gradients follow them.
void add_ring(UseList& list, const Passes& passes, const ContextSplit& split,
              const LocalShape& local) {
  const std::int64_t bytes = local.tokens * attended_kv(local) * list.element();
  const std::int64_t hops = split.ring - 1;
  const std::int64_t count = 2 * hops * (passes.of(BlockPart::attention) + 2 * passes.once);
  for (const char* operation : {"send", "receive"}) {
    UseList::Call call = layer_call(operation, "keys and values", ring_kind(split));
    call.ranks = split.ring;
    list.add(call, count, bytes);
  }
}

/// Tokens for heads: queries, keys and values there, the result back, and the duals in backward.
void add_heads(UseList& list, const Passes& passes, const ContextSplit& split,
               const LocalShape& local) {
  const std::int64_t q = local.tokens * local.q * list.element();
  const std::int64_t kv = local.tokens * local.kv * list.element();
  const std::int64_t forward = passes.of(BlockPart::qkv);
  UseList::Call call = layer_call("all_to_all", "heads", heads_kind(split));
  call.ranks = split.heads;
  list.add(call, forward + passes.of(BlockPart::attention) + 2 * passes.once, q);
  list.add(call, 2 * (forward + passes.once), kv);
}

/// Keys and values, once more in backward, and their gradients.
void add_key_gathers(UseList& list, const Passes& passes, const ContextSplit& split,
                     const LocalShape& local) {
  const std::int64_t all = split.gather * local.tokens * attended_kv(local) * list.element();
  list.add(layer_call("all_gather", "keys and values", "cp"),
           2 * (passes.of(BlockPart::attention) + passes.once), all);
  list.add(layer_call("reduce_scatter", "keys and values", "cp"), 2 * passes.once, all);
}

void add_context(UseList& list) {
  const Plan& plan = list.plan();
  const ContextSplits& context = plan.context;
  for (const ContextSplit& split : context.kinds()) {
    for (const SplitBy over_tp : all_splits) {
      const Passes passes = passes_of(list, [&](int unit) {
        return context.of_unit(unit) == split && plan.splits.of_unit(unit).attention == over_tp;
      });
      LocalShapeInput input{plan.model, plan.mesh, plan.micro_batch_size};
      input.block.attention = over_tp;
      const LocalShape local = local_shape(input);
      if (split.heads > 1) add_heads(list, passes, split, local);
      if (split.ring > 1) add_ring(list, passes, split, local);
      if (split.gather > 1) add_key_gathers(list, passes, split, local);
    }
  }
}

/// What ranks with parts of the same experts gather of rows, weights and gradients, and add up of
/// what they make. Each call has the room of all of them.
void add_expert_parts(UseList& list, std::int64_t forward, std::int64_t backward) {
  const Plan& plan = list.plan();
  const std::int64_t rows = plan.local.gathered_rows;
  const auto add = [&](const char* operation, std::int64_t count, std::int64_t bytes) {
    UseList::Call call = layer_call(operation, std::string(rows_of_parts), "expert:tp");
    call.at_most = true;
    list.add_total(call, count * plan.exchange.chunks, count * rows * bytes);
  };
  const std::int64_t row = plan.model.hidden * list.element();
  const std::int64_t sum = plan.model.hidden * (plan.fp32_sums ? fp32 : list.element());
  add("all_gather", forward, row);
  add("all_gather", forward, fp32);  // the weights
  add("all_gather", backward, row);
  add("reduce_scatter", 2 * backward, sum);  // of F and of B
  add("reduce_scatter", backward, fp32);
}

/// The router's scores over tp, and of each token over ep: its row to its experts and back, the
/// same for the gradients. How many rows there are follows from what the router chooses; these are
/// the most.
void add_experts(UseList& list, const Passes& passes) {
  const Plan& plan = list.plan();
  const ModelShape& model = plan.model;
  if (passes.once == 0) return;
  const std::int64_t forward = passes.of(BlockPart::mlp);
  const ExchangeRule& rule = plan.exchange;
  if (!rule.by_stream) {
    const UseList::Region scores{"router", UnitKind::block, plan.local.tokens * model.experts,
                                 fp32};
    list.reshard(list.stream(), Layout::replicated, scores, forward);
    list.reshard(dual(Layout::replicated), dual(list.stream()), scores, passes.once);
  }
  if (model.shared_gate) {
    const UseList::Region gate{"gate", UnitKind::block, plan.local.tokens, fp32};
    list.reshard(list.stream(), Layout::replicated, gate, forward);
    list.reshard(dual(Layout::replicated), dual(list.stream()), gate, passes.once);
  }
  list.add(layer_call("all_gather", "scores", routers_kind(plan.mesh, rule)), forward,
           plan.local.routing_ranks * plan.local.routed_tokens * model.experts * fp32);
  const std::int64_t counts = plan.mesh.ep * model.experts * counted_as;
  const auto add_counts = [&](const char* kind, std::int64_t ranks, std::int64_t bytes) {
    UseList::Call call = layer_call("all_gather", "rows of experts", counts_kind(kind, rule));
    call.ranks = ranks;
    list.add(call, forward, bytes);
  };
  add_counts("expert:ep", plan.mesh.ep, counts);
  if (rule.parts > 1) {
    add_counts("expert:tp", rule.parts, rule.parts * counts);
    add_expert_parts(list, forward, passes.once);
  }
  UseList::Call call = layer_call("all_to_all", std::string(rows_of_experts), "expert:ep");
  call.at_most = true;
  const std::int64_t row = model.hidden * list.element();
  const std::int64_t sent = plan.local.routed_rows;
  const std::int64_t received = plan.local.received_rows;
  const auto add = [&](std::int64_t count, std::int64_t bytes) {
    list.add_total(call, count * rule.chunks, count * bytes);
  };
  add(2 * forward, sent * (row + fp32) / 2);          // rows, and their weights
  add(passes.once, received * row);                   // what the experts give
  add(passes.once, sent * row);                       // its gradient
  add(2 * passes.once, received * (row + fp32) / 2);  // of rows and of weights
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
  const Passes experts = expert_passes(list);
  if (plan.mesh.tp > 1) {
    add_blocks(list);
    const bool shared = plan.model.shared_ffn > 0;
    if (experts_need_all(plan.model, plan.exchange.by_stream)) {
      add_region(list, experts, "experts", BlockPart::mlp);
    }
    if (shared) add_gathers(list, experts, "experts", BlockPart::mlp);
    add_slices(list);
    add_vocabulary(list);
  }
  add_context(list);
  add_experts(list, experts);
  add_messages(list);
  add_state(list);
  return list.take();
}

}  // namespace trainctl
