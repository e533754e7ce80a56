#include "engine/param_sync.h"

#include <string>

#include "comm/await.h"
#include "ops/cast.h"

namespace trainctl {

namespace {

Tensor flat(const Tensor& x) { return x.view({x.numel()}); }

bool is_sliced(const StagePlan& stage, const std::vector<int>& parameters) {
  return stage.shards[static_cast<std::size_t>(parameters.front())].kind == ShardKind::bucket;
}

}  // namespace

ParamSync::ParamSync(const Plan& plan, const ParamStore& store, World& world, Stream& stream)
    : world_(world),
      stream_(stream),
      dp_(plan.mesh.group(world.rank(), std::vector{Axis::cp, Axis::dp})) {
  const StagePlan& stage = plan.stage_of(world.rank());
  const std::string kind = plan.mesh.cp == 1 ? "dp" : "dp-cp";
  for (std::size_t i = 0; i < stage.flat.buckets.size(); ++i) {
    const std::vector<int>& parameters = stage.flat.buckets[i].parameters;
    Bucket& bucket = buckets_.emplace_back();
    if (is_sliced(stage, parameters)) {
      Group* group = group_over(kind, dp_);
      const Tensor whole = store.bucket_masters(static_cast<int>(i));
      const std::int64_t part = whole.numel() / group->size();
      const std::int64_t begin = group->rank() * part;
      bucket.gathers.push_back({group, whole.slice(begin, begin + part), whole});
    }
    for (const int index : parameters) {
      const OptimizerShard& shard = stage.shards[static_cast<std::size_t>(index)];
      if (shard.kind != ShardKind::whole) add(bucket, store, shard, index);
    }
  }
}

void ParamSync::add(Bucket& bucket, const ParamStore& store, const OptimizerShard& shard,
                    int parameter) {
  const Tensor master = flat(store.master(parameter));
  if (shard.kind == ShardKind::dealt) {
    bucket.sends.push_back({static_cast<int>(shard.owner), master});
    group_over("dp", dp_);
  } else if (shard.kind == ShardKind::rows) {
    const OwnershipTable& table = store.ownership();
    const Ownership& own = table.parameters[static_cast<std::size_t>(parameter)];
    const ShardRoute& route = table.routes[static_cast<std::size_t>(own.route)];
    bucket.gathers.push_back({group_over(route.gather_kind, route.gather),
                              master.slice(own.owned.begin, own.owned.end), master});
  }
  const Tensor copy = store.compute(parameter);
  if (!copy.empty()) bucket.copies.push_back({store.master(parameter), copy});
}

Group* ParamSync::group_over(const std::string& kind, const std::vector<int>& ranks) {
  std::unique_ptr<Group>& group = groups_[ranks];
  if (!group) group = world_.group("parameters " + kind, ranks);
  return group.get();
}

void ParamSync::start(int bucket, Stream& compute) {
  Bucket& mine = buckets_[static_cast<std::size_t>(bucket)];
  stream_.wait(compute.record());
  for (const Gather& gather : mine.gathers) {
    gather.group->all_gather(gather.part, gather.whole, stream_);
  }
  for (const Send& send : mine.sends) {
    groups_.at(dp_)->broadcast(send.whole, send.owner, stream_);
  }
  mine.done = stream_.record();
}

void ParamSync::wait(int bucket, const OpContext& context, double deadline_seconds) {
  const Bucket& mine = buckets_[static_cast<std::size_t>(bucket)];
  // The host waits as well, as for the sums of gradients: a failed gather must stop this rank here.
  await(mine.done, deadline_seconds,
        [&] { return "the gather of the parameters of bucket " + std::to_string(bucket); });
  context.stream->wait(mine.done);
  for (const Copy& copy : mine.copies) cast(context, {.x = copy.master, .y = copy.compute});
}

void ParamSync::complete(const OpContext& context, double deadline_seconds) {
  if (current_) return;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (!buckets_[i].empty()) start(static_cast<int>(i), *context.stream);
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (!buckets_[i].empty()) wait(static_cast<int>(i), context, deadline_seconds);
  }
  current_ = true;
}

}  // namespace trainctl
