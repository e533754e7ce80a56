#include "engine/groups/context_groups.h"

#include <vector>

namespace trainctl {

ContextGroups make_context_groups(const Plan& plan, World& world) {
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
  groups.gather = group("cp", number, split.heads, split.gather);
  return groups;
}

}  // namespace trainctl
