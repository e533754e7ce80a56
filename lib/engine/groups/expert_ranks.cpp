#include "engine/groups/expert_ranks.h"

#include "plan/tables/groups.h"

namespace trainctl {

namespace {

/// Of the groups that there are, one with all context-parallel ranks; or null.
Group* whole_context(const Plan& plan, const ContextGroups& context) {
  for (Group* group : {context.heads.get(), context.ring.get(), context.gather.get()}) {
    if (group != nullptr && group->size() == plan.mesh.cp) return group;
  }
  return nullptr;
}

}  // namespace

ExpertRanks make_expert_ranks(const Plan& plan, const DeviceWorld& world, Group& tp,
                              const ContextGroups& context) {
  ExpertRanks ranks;
  if (plan.model.experts == 1) return ranks;
  const Mesh& mesh = plan.mesh;
  ranks.ep = world.group("layers expert:ep", mesh.group(world.rank(), Axis::ep));
  const bool by_stream = experts_take_stream(mesh);
  ranks.groups = {.ep = ranks.ep.get(),
                  .routers = by_stream && mesh.cp == 1 ? &tp : nullptr,
                  .by_stream = by_stream,
                  .order = {plan.tokens, plan.micro_batch_size},
                  .chunks = plan.exchange.chunks};
  if (mesh.cp == 1) return ranks;
  if (!by_stream) ranks.groups.routers = whole_context(plan, context);
  if (ranks.groups.routers != nullptr) return ranks;
  const std::vector<Axis> axes =
      by_stream ? std::vector{Axis::tp, Axis::cp} : std::vector{Axis::cp};
  ranks.own_routers = world.group("layers " + routers_kind(mesh), mesh.group(world.rank(), axes));
  ranks.groups.routers = ranks.own_routers.get();
  return ranks;
}

}  // namespace trainctl
