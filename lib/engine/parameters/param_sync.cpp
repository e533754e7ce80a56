#include "engine/parameters/param_sync.h"

#include <algorithm>
#include <string>

#include "base/at.h"
#include "comm/await.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

namespace {

std::vector<SlabRow> packed_parameter_rows(const Plan& plan, const StagePlan& stage,
                                           const OwnershipTable& table) {
  const std::int64_t most = packed_parameters(plan, stage, table);
  if (most == 0) return {};
  return {{"packed", Shape{most}, DType::u8}};
}

}  // namespace

ParamSync::ParamSync(const Plan& plan, const ParamStore& store, const DeviceWorld& world,
                     const OpContext& queue)
    : stage_(plan.stage_of(world.rank())),
      groups_(world, TrafficPurpose::parameters),
      queue_(queue),
      packed_(world.device(), packed_parameter_rows(plan, stage_, store.ownership())) {
  const auto replicas = [&](int index) {
    return groups_.of_replicas(plan.mesh, world.rank(), at(stage_.parameters, index).expert);
  };
  for (int number = 0; number < std::ssize(stage_.gathers); ++number) {
    const GatherBlock& planned = at(stage_.gathers, number);
    Block& block = blocks_.emplace_back();
    for (const int index : planned.parameters) {
      const Slice own = store.owned(index);
      if (!planned.freed || own.length() == 0) continue;
      block.own.push_back({part_in(store.resident(index), own), flat(store.master(index))});
    }
    if (planned.from_host) {
      block.here = store.block_bytes(number);
      block.host = store.host_block(number);
      if (!host_copies_) {
        host_copies_ =
            std::make_unique<Stream>(world.device(), "host weights", Stream::Mode::queued);
      }
    }
    if (planned.bucket >= 0) {
      add_slices(block, plan, store, number, *replicas(planned.parameters.front()));
    }
    add_rows(block, plan, store, planned);
    for (const int index : planned.parameters) {
      const OptimizerShard& shard = at(stage_.shards, index);
      if (shard.kind != ShardKind::dealt) continue;
      block.sends.push_back(
          {replicas(index), static_cast<int>(shard.owner), flat(store.resident(index))});
    }
  }
}

Tensor ParamSync::packed(std::int64_t elements, DType type) const {
  const Tensor all = packed_.at("packed");
  return {all.data, Shape{elements}, type, all.device};
}

/// The whole stretch, and the weights of another type on their own: of these each rank sends as
/// many as any has.
void ParamSync::add_slices(Block& block, const Plan& plan, const ParamStore& store, int number,
                           Group& replicas) {
  const GatherBlock& planned = at(stage_.gathers, number);
  const std::int64_t ranks = replicas.size();
  const Tensor whole = store.block_weights(number);
  const std::int64_t part = whole.numel() / ranks;
  const std::int64_t begin = replicas.rank() * part;
  block.gathers.push_back({&replicas, {whole, whole.slice(begin, begin + part)}, {}, {}});
  const std::int64_t most = most_apart(plan.compute, stage_, planned, ranks);
  if (most == 0) return;
  const Tensor all = packed(ranks * most, DType::f32);
  const std::int64_t own = replicas.rank() * most;
  Gather& gather =
      block.gathers.emplace_back(Gather{&replicas, {all, all.slice(own, own + most)}, {}, {}});
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t place = rank * most;
    for (const ApartPiece& piece : pieces_apart(plan.compute, stage_, planned, ranks, rank)) {
      const std::int64_t length = piece.part.length();
      const Tensor weight = part_in(store.resident(piece.parameter), piece.part);
      const Tensor sent = all.slice(place, place + length);
      place += length;
      if (rank == replicas.rank()) {
        gather.in.push_back({sent, weight});
      } else {
        gather.out.push_back({weight, sent});
      }
    }
  }
}

void ParamSync::add_rows(Block& block, const Plan& plan, const ParamStore& store,
                         const GatherBlock& planned) {
  const OwnershipTable& table = store.ownership();
  for (const RowExchange& exchange : row_gathers(plan, stage_, table, planned)) {
    const ShardRoute& route = at(table.routes, exchange.route);
    Gather& gather = block.gathers.emplace_back();
    gather.group = groups_.over(route.gather_kind, route.gather);
    std::vector<Divided> weights;
    std::int64_t elements = 0;
    for (const int index : exchange.parameters) {
      const Tensor weight = flat(store.resident(index));
      weights.push_back({weight, part_in(weight, store.owned(index))});
      elements += weight.numel();
    }
    if (weights.size() == 1) {
      gather.values = weights.front();
      continue;
    }
    Packed packed = pack_gather(weights, this->packed(elements, weights.front().whole.dtype),
                                gather.group->size(), gather.group->rank());
    gather.values = packed.all;
    gather.in = std::move(packed.in);
    gather.out = std::move(packed.out);
  }
}

void ParamSync::start(int block, Stream& compute) {
  Block& mine = at(blocks_, block);
  Stream& stream = *queue_.stream;
  stream.wait(compute.record());
  if (!mine.host.empty()) return bring(mine);
  enqueue(mine.own, queue_);
  for (const Gather& gather : mine.gathers) {
    enqueue(gather.in, queue_);
    gather.group->all_gather(gather.values.part, gather.values.whole, stream);
    enqueue(gather.out, queue_);
  }
  for (const Send& send : mine.sends) send.group->broadcast(send.whole, send.owner, stream);
  mine.done = stream.record();
}

void ParamSync::bring(Block& block) {
  if (!block.host_knows) enqueue(block.own, queue_);
  host_copies_->wait(queue_.stream->record());
  const Tensor& to = block.host_knows ? block.here : block.host;
  host_copies_->copy(to, block.host_knows ? block.host : block.here);
  block.host_knows = true;
  block.done = host_copies_->record();
}

void ParamSync::expire() {
  current_ = false;
  for (Block& block : blocks_) block.host_knows = false;
}

void ParamSync::wait(int block, const OpContext& context, double deadline_seconds) {
  const Block& mine = at(blocks_, block);
  continue_after(*context.stream, mine.done, deadline_seconds,
                 [&] { return "gather " + std::to_string(block) + " of parameters"; });
}

void ParamSync::complete(const OpContext& context, double deadline_seconds) {
  if (current_) return;
  const int count = static_cast<int>(blocks_.size());
  const auto stays = [&](int block) { return !at(stage_.gathers, block).freed; };
  for (int block = 0; block < count; ++block) {
    if (stays(block)) start(block, *context.stream);
  }
  for (int block = 0; block < count; ++block) {
    if (stays(block)) wait(block, context, deadline_seconds);
  }
  current_ = true;
}

}  // namespace trainctl
