#include "engine/groups/context_groups.h"

#include <vector>

#include "nn/exchange/shared_keys.h"

namespace trainctl {

namespace {

/// Blocks of keys go to the next rank and come from the one before.
void open_ring(Group& ring) {
  std::vector<MessageLine> lines;
  for (int tag = 0; tag < SharedKeys::tags; ++tag) {
    lines.push_back({(ring.rank() + 1) % ring.size(), tag, true});
    lines.push_back({(ring.rank() + ring.size() - 1) % ring.size(), tag, false});
  }
  ring.open_lines(lines);
}

}  // namespace

ContextGroups make_context_groups(const Plan& plan, const DeviceWorld& world) {
  const ContextSplit& split = plan.context;
  const std::vector<int> all = plan.mesh.group(world.rank(), Axis::cp);
  ContextGroups groups;
  groups.rank = plan.mesh.coordinate(world.rank(), Axis::cp);
  // Of the group's ranks every `step`-th from number `first` on.
  const auto group = [&](const std::string& kind, std::int64_t first, std::int64_t step,
                         std::int64_t count) -> std::unique_ptr<Group> {
    if (count == 1) return nullptr;
    std::vector<int> ranks;
    for (std::int64_t i = 0; i < count; ++i) {
      ranks.push_back(all[static_cast<std::size_t>(first + i * step)]);
    }
    return world.group("layers " + kind, ranks);
  };
  const std::int64_t number = groups.rank % split.heads;
  groups.heads = group(heads_kind(split), groups.rank - number, 1, split.heads);
  groups.ring = group(ring_kind(split), number, split.heads, split.ring);
  if (groups.ring) open_ring(*groups.ring);
  groups.gather = group("cp", number, split.heads, split.gather);
  return groups;
}

}  // namespace trainctl
