#include "engine/parameters/param_sync.h"

#include <string>

#include "comm/await.h"
#include "ops/cast.h"
#include "plan/ownership/row_exchange.h"
#include "plan/tables/groups.h"

namespace trainctl {

namespace {

std::vector<SlabRow> packed_rows(const Plan& plan, const StagePlan& stage,
                                 const OwnershipTable& table) {
  const std::int64_t most = packed_parameters(plan, stage, table);
  if (most == 0) return {};
  return {{"packed", Shape{most}, DType::f32}};
}

}  // namespace

ParamSync::ParamSync(const Plan& plan, const ParamStore& store, World& world,
                     const OpContext& queue, DeviceKind device)
    : groups_(world, "parameters"),
      queue_(queue),
      replicas_(nullptr),
      packed_(device, packed_rows(plan, plan.stage_of(world.rank()), store.ownership())) {
  const StagePlan& stage = plan.stage_of(world.rank());
  const std::string kind = replicas_kind(plan.mesh, false);
  const std::vector<int> ranks = plan.mesh.group(world.rank(), {Axis::cp, Axis::dp});
  for (const GatherBlock& planned : stage.gathers) {
    Block& block = blocks_.emplace_back();
    if (planned.bucket >= 0) {
      Group* group = groups_.over(kind, ranks);
      const Tensor whole = store.bucket_masters(planned.bucket);
      const std::int64_t part = whole.numel() / group->size();
      const std::int64_t begin = group->rank() * part;
      block.gathers.push_back({group, {whole, whole.slice(begin, begin + part)}, {}, {}});
    }
    add_rows(block, store, planned, fuses_rows(plan.gradient.buckets));
    for (const int index : planned.parameters) {
      const OptimizerShard& shard = stage.shards[static_cast<std::size_t>(index)];
      if (shard.kind == ShardKind::dealt) {
        replicas_ = groups_.over(kind, ranks);
        block.sends.push_back({static_cast<int>(shard.owner), flat(store.master(index))});
      }
      const Tensor copy = store.compute(index);
      if (!copy.empty()) block.copies.push_back({store.master(index), copy});
    }
  }
}

void ParamSync::add_rows(Block& block, const ParamStore& store, const GatherBlock& planned,
                         bool fused) {
  const OwnershipTable& table = store.ownership();
  for (const RowExchange& exchange : row_exchanges(table, planned.parameters, fused)) {
    const ShardRoute& route = table.routes[static_cast<std::size_t>(exchange.route)];
    Gather& gather = block.gathers.emplace_back();
    gather.group = groups_.over(route.gather_kind, route.gather);
    std::vector<Divided> masters;
    for (const int index : exchange.parameters) {
      const Slice& own = table.parameters[static_cast<std::size_t>(index)].owned;
      const Tensor master = flat(store.master(index));
      masters.push_back({master, master.slice(own.begin, own.end)});
    }
    if (masters.size() == 1) {
      gather.values = masters.front();
      continue;
    }
    Packed packed =
        pack_gather(masters, packed_.at("packed"), gather.group->size(), gather.group->rank());
    gather.values = packed.all;
    gather.in = std::move(packed.in);
    gather.out = std::move(packed.out);
  }
}

void ParamSync::start(int block, Stream& compute) {
  Block& mine = blocks_[static_cast<std::size_t>(block)];
  Stream& stream = *queue_.stream;
  stream.wait(compute.record());
  for (const Gather& gather : mine.gathers) {
    enqueue(gather.in, queue_);
    gather.group->all_gather(gather.values.part, gather.values.whole, stream);
    enqueue(gather.out, queue_);
  }
  for (const Send& send : mine.sends) replicas_->broadcast(send.whole, send.owner, stream);
  mine.done = stream.record();
}

void ParamSync::wait(int block, const OpContext& context, double deadline_seconds) {
  const Block& mine = blocks_[static_cast<std::size_t>(block)];
  // The host waits as well, as for the sums of gradients: a failed gather must stop this rank here.
  await(mine.done, deadline_seconds,
        [&] { return "gather " + std::to_string(block) + " of parameters"; });
  context.stream->wait(mine.done);
  for (const Copy& copy : mine.copies) cast(context, {.x = copy.master, .y = copy.compute});
}

void ParamSync::complete(const OpContext& context, double deadline_seconds) {
  if (current_) return;
  const int count = static_cast<int>(blocks_.size());
  for (int block = 0; block < count; ++block) start(block, *context.stream);
  for (int block = 0; block < count; ++block) wait(block, context, deadline_seconds);
  current_ = true;
}

}  // namespace trainctl
