#include "engine/param_sync.h"

#include <string>

#include "ops/cast.h"

namespace trainctl {

ParamSync::ParamSync(const Plan& plan, const ParamStore& store, World& world) {
  const StagePlan& stage = plan.stage_of(world.rank());
  for (int i = 0; i < static_cast<int>(stage.parameters.size()); ++i) {
    const OptimizerShard& shard = stage.shards[static_cast<std::size_t>(i)];
    if (shard.kind == ShardKind::whole) continue;
    const Tensor master = store.master(i).view({store.master(i).numel()});
    const Slice part = store.owned(i);
    if (shard.kind == ShardKind::dealt) {
      if (!dp_) dp_ = world.group("parameters dealt", plan.mesh.group(world.rank(), Axis::dp));
      sends_.push_back({static_cast<int>(shard.owner), master});
    } else {
      const ParamSpec& row = stage.parameters[static_cast<std::size_t>(i)];
      Group* group = group_over(plan, replica_place(row, plan.mesh, world.rank()), world);
      gathers_.push_back({group, master.slice(part.begin, part.end), master});
    }
    const Tensor copy = store.compute(i);
    if (!copy.empty()) copies_.push_back({store.master(i), copy});
  }
}

/// The replicas in the order of their slices: over dp and cp, and for each the tensor-parallel
/// ranks with the same values.
Group* ParamSync::group_over(const Plan& plan, const ReplicaPlace& place, World& world) {
  std::unique_ptr<Group>& group = rows_[place.inners];
  if (group) return group.get();
  const std::int64_t stride = plan.mesh.stride(Axis::tp);
  std::vector<int> ranks;
  for (const int outer : plan.mesh.group(world.rank(), {Axis::cp, Axis::dp})) {
    for (std::int64_t inner = 0; inner < place.inners; ++inner) {
      ranks.push_back(static_cast<int>(outer + (inner - place.inner) * stride));
    }
  }
  group = world.group("parameters over " + std::to_string(place.inners), ranks);
  return group.get();
}

void ParamSync::run(const OpContext& context) const {
  Stream& stream = *context.stream;
  for (const Gather& gather : gathers_) {
    gather.group->all_gather(gather.slice, gather.whole, stream);
  }
  for (const Send& send : sends_) dp_->broadcast(send.whole, send.owner, stream);
  for (const Copy& copy : copies_) cast(context, {.x = copy.master, .y = copy.compute});
}

}  // namespace trainctl
