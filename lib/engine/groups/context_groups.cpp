#include "engine/groups/context_groups.h"

#include <vector>

#include "plan/tables/layout.h"

namespace trainctl {

namespace {

/// Blocks of keys go to the next rank and come from the one before.
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
  // Of the group's ranks every `step`-th from number `first` on.
  const auto group = [&](GroupKind kind, std::int64_t first, std::int64_t step, std::int64_t count,
                         Carries carries) {
    std::vector<int> ranks;
    for (std::int64_t i = 0; i < count; ++i) {
      ranks.push_back(all[static_cast<std::size_t>(first + i * step)]);
    }
    return world.group(group_name(TrafficPurpose::layers, kind), ranks, {.carries = carries});
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

}  // namespace trainctl
