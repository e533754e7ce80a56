#include "engine/groups/layer_groups.h"

#include <vector>

#include "base/at.h"
#include "plan/tables/layout.h"
#include "plan/tables/mesh.h"

namespace trainctl {

namespace {

/// Opens the message lines of a ring: blocks of keys go to the next rank.
void open_ring(Group& ring) {
  std::vector<MessageLine> lines;
  for (int tag = 0; tag < ring_tags; ++tag) {
    lines.push_back({(ring.rank() + 1) % ring.size(), tag, true});
    lines.push_back({(ring.rank() + ring.size() - 1) % ring.size(), tag, false});
  }
  ring.open_lines(lines);
}

}  // namespace

ContextGroups make_context_groups(const Plan& plan, const DeviceWorld& world) {
  const std::vector<int> all = plan.mesh.group(world.rank(), Axis::cp);
  ContextGroups groups;
  groups.rank = plan.mesh.coordinate(world.rank(), Axis::cp);
  if (plan.mesh.cp == 1) return groups;
  // The group of `count` ranks of `all`: number `first` and every `step`-th after it.
  const auto group = [&](GroupKind kind, std::int64_t first, std::int64_t step, std::int64_t count,
                         Carries carries) {
    std::vector<int> ranks;
    for (std::int64_t i = 0; i < count; ++i) {
      ranks.push_back(at(all, first + i * step));
    }
    return world.group(group_name(TrafficPurpose::layers, kind), ranks, Lane::layers, carries);
  };
  bool whole_ring = false;
  for (const ContextSplit& split : plan.context.kinds()) {
    const bool two_levels = split.heads > 1 && split.ring > 1;
    whole_ring = whole_ring || split.ring == plan.mesh.cp;
    if (!two_levels) {
      if (!groups.whole)
        groups.whole = group(group_over({Axis::cp}), 0, 1, plan.mesh.cp, Carries::all);
      continue;
    }
    const std::int64_t number = groups.rank % split.heads;
    groups.heads = group(heads_kind(split), groups.rank - number, 1, split.heads, Carries::all);
    groups.ring = group(ring_kind(split), number, split.heads, split.ring, Carries::messages);
    open_ring(*groups.ring);
  }
  if (whole_ring) open_ring(*groups.whole);
  return groups;
}

ContextParallel context_of(const Plan& plan, const ContextGroups& groups, int unit,
                           const Tensor& packed) {
  const ContextSplit split = plan.context.of_unit(unit);
  const auto group = [&](std::int64_t ranks, Group* part) {
    return ranks == 1 ? nullptr : ranks == plan.context.ranks ? groups.whole.get() : part;
  };
  return {.split = split,
          .tokens = plan.tokens,
          .length_step = plan.length_step,
          .rank = groups.rank,
          .batch_ranks = plan.context.most(&ContextSplit::heads),
          .heads = group(split.heads, groups.heads.get()),
          .ring = group(split.ring, groups.ring.get()),
          .gather = group(split.gather, nullptr),
          .packed = packed};
}

namespace {

/// The ranks of a router in the order of their tokens, whatever the order of ranks: all
/// context-parallel ranks, each with its tensor-parallel ranks if these split the stream.
std::vector<int> router_ranks(const Mesh& mesh, int rank, bool by_stream) {
  std::vector<int> ranks;
  for (const int context : mesh.group(rank, Axis::cp)) {
    const std::vector<int> more =
        by_stream ? mesh.group(context, Axis::tp) : std::vector<int>{context};
    ranks.insert(ranks.end(), more.begin(), more.end());
  }
  return ranks;
}

}  // namespace

ExpertRanks make_expert_ranks(const Plan& plan, const DeviceWorld& world, Group& tp,
                              const ContextGroups& context) {
  ExpertRanks ranks;
  if (plan.model.experts == 1) return ranks;
  const Mesh& mesh = plan.mesh;
  const ExchangeRule& rule = plan.exchange;
  const Lane lane = rule.overlaps() ? Lane::experts : Lane::layers;
  const auto group = [&](GroupKind kind, const std::vector<int>& among,
                         Lane of_calls = Lane::layers, Carries carries = Carries::collectives) {
    return world.group(group_name(TrafficPurpose::layers, kind), among, of_calls, carries);
  };
  const std::vector<int> others = mesh.group(world.rank(), Axis::ep);
  const std::vector<int> parts = mesh.group(world.rank(), Axis::etp);
  ranks.ep = group(experts_group, others, lane, Carries::all);
  const bool by_stream = rule.by_stream;
  if (rule.parts > 1) ranks.parts = group(expert_parts_group, parts, lane);
  if (rule.beside_passes) ranks.ep_counts = group(counts_kind(experts_group, rule), others);
  if (rule.beside_passes && rule.parts > 1) {
    ranks.parts_counts = group(counts_kind(expert_parts_group, rule), parts);
  }
  if (rule.overlaps()) {
    ranks.wire = std::make_unique<Stream>(plan.device, "experts", Stream::Mode::queued);
  }
  ranks.groups = {.ep = ranks.ep.get(),
                  .parts = ranks.parts.get(),
                  .routers = by_stream && mesh.cp == 1 ? &tp : nullptr,
                  .adds_bias = mesh.coordinate(world.rank(), Axis::etp) == 0,
                  .by_stream = by_stream,
                  .slices = rule.by_slice ? &tp : nullptr,
                  .ep_counts = (rule.beside_passes ? ranks.ep_counts : ranks.ep).get(),
                  .parts_counts = (rule.beside_passes ? ranks.parts_counts : ranks.parts).get(),
                  .order = {plan.tokens, plan.micro_batch_size},
                  .chunks = rule.chunks,
                  .beside = ranks.wire.get()};
  if (mesh.cp == 1) return ranks;
  if (!by_stream) ranks.groups.routers = context.whole.get();
  if (ranks.groups.routers != nullptr) return ranks;
  ranks.local_routers =
      group(routers_kind(mesh, rule), router_ranks(mesh, world.rank(), by_stream));
  ranks.groups.routers = ranks.local_routers.get();
  return ranks;
}

}  // namespace trainctl
