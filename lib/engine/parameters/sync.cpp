#include "engine/parameters/sync.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/at.h"
#include "base/text.h"
#include "comm/group.h"
#include "ops/elementwise.h"
#include "ops/kernels.h"
#include "plan/gradients/buckets.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

// Groups for one purpose, indexed by their ranks; each is formed when it is first requested.

class GroupMap {
 public:
  /// The groups are used on the gradient stream.
  GroupMap(const DeviceWorld& world, TrafficPurpose purpose) : world_(world), purpose_(purpose) {}

  /// The ranks that hold the same share of the parameters as `rank` and see other data, for the
  /// parameters of experts or for all others.
  Group* of_replicas(const Mesh& mesh, std::int64_t rank, bool experts) {
    return over(replicas_kind(mesh, experts), replica_ranks(mesh, rank, experts));
  }

  /// The group of these world ranks, named by group_name; null for a single rank. Forming it is
  /// collective over these ranks.
  Group* over(GroupKind kind, const std::vector<int>& ranks) {
    if (ranks.size() == 1) return nullptr;
    // The kind is part of the key, since traffic is counted by the name of the group.
    std::unique_ptr<Group>& group = groups_[{kind, ranks}];
    if (!group) group = world_.group(group_name(purpose_, kind), ranks, Lane::gradients);
    return group.get();
  }

 private:
  const DeviceWorld& world_;
  TrafficPurpose purpose_;
  std::map<std::pair<GroupKind, std::vector<int>>, std::unique_ptr<Group>> groups_;
};

namespace {

/// Calls visit(rank, place in the buffer, values) for each rank's part of each tensor.
template <class Visit>
void for_each_part(std::span<const Divided> tensors, const Tensor& buffer, int ranks, Visit visit) {
  std::int64_t end = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Divided& one : tensors) {
      const std::int64_t length = one.part.numel();
      visit(rank, buffer.slice(end, end + length),
            one.whole.slice(rank * length, (rank + 1) * length));
      end += length;
    }
  }
}

Divided places_of(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank) {
  std::int64_t length = 0;
  for (const Divided& one : tensors) length += one.part.numel();
  return {buffer.slice(0, ranks * length), buffer.slice(rank * length, (rank + 1) * length)};
}

}  // namespace

void enqueue(std::span<const Move> moves, const OpContext& ops) {
  for (const Move& move : moves) {
    if (move.to.dtype == move.from.dtype) {
      ops.stream->copy(move.to, move.from);
    } else {
      in_order(ops, [&ops, move] { cast(ops, {.x = move.from, .y = move.to}); });
    }
  }
}

Packed pack_scatter(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank) {
  Packed packed{.all = places_of(tensors, buffer, ranks, rank), .in = {}, .out = {}};
  if (tensors.size() == 1) {  // the parts of a single tensor are already in order
    packed.in.push_back({packed.all.whole, tensors[0].whole});
    packed.out.push_back({tensors[0].part, packed.all.part});
    return packed;
  }
  for_each_part(tensors, buffer, ranks, [&](int owner, const Tensor& place, const Tensor& values) {
    packed.in.push_back({place, values});
    if (owner == rank) packed.out.push_back({values, place});
  });
  return packed;
}

Packed pack_gather(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank) {
  Packed packed{.all = places_of(tensors, buffer, ranks, rank), .in = {}, .out = {}};
  for_each_part(tensors, buffer, ranks, [&](int owner, const Tensor& place, const Tensor& values) {
    if (owner == rank) {
      packed.in.push_back({place, values});
    } else {
      packed.out.push_back({values, place});
    }
  });
  return packed;
}

namespace {

constexpr Lane lane = Lane::gradients;

std::int64_t max_copies(const StagePlan& stage) {
  std::int64_t most = 1;
  for (const ParamSpec& row : stage.parameters) most = std::max(most, row.tp_copies);
  return most;
}

/// The neighbouring tensor-parallel ranks that hold the same key and value heads as `rank`.
std::vector<int> copies_of(const Plan& plan, std::int64_t rank) {
  const std::int64_t copies = max_copies(plan.stage_of(rank));
  const std::vector<int> tp = plan.mesh.group(rank, Axis::tp);
  const std::int64_t first = plan.mesh.coordinate(rank, Axis::tp) / copies * copies;
  return {tp.begin() + first, tp.begin() + first + copies};
}

std::unique_ptr<Group> embedding_group(const Plan& plan, const DeviceWorld& world) {
  const std::vector<int> homes = embedding_homes(plan, world.rank());
  const bool here = std::ranges::find(homes, world.rank()) != homes.end();
  if (!here) return nullptr;
  return world.group(group_name(TrafficPurpose::gradients, embedding_kind), homes, lane);
}

/// The buffer in which gradients are packed for one sum at a time.
std::vector<SlabRow> packed_gradient_rows(const Plan& plan, const StagePlan& stage,
                                          const OwnershipTable& table) {
  const std::int64_t most = packed_gradients(plan, stage, table);
  if (most == 0) return {};
  return {{"packed", Shape{most}, plan.gradient.dtype}};
}

Divided undivided(const Tensor& gradient) { return {flat(gradient), flat(gradient)}; }

}  // namespace

/// A reduce-scatter of gradients over `scatter`, and a sum of the result over `group`; a group is
/// null if it would have one rank. Packed gradients are copied in before and out after.
struct GradSync::Sum {
  Group* scatter = nullptr;
  Group* group = nullptr;
  Divided values;
  std::vector<Move> in, out;
};

struct GradSync::Pending {
  std::vector<Sum> sums;
  std::vector<Sum> shared;  // sums of the tied embedding, on the stages that hold it
  std::vector<Move> kept;   // adds this rank's parts to earlier sums, for a repeated sum
  Tensor made;              // the slot with the made gradients of a repeated sum
  Event done;
};

GradSync::GradSync(const Plan& plan, const ParamStore& store, const DeviceWorld& world)
    : groups_(std::make_unique<GroupMap>(world, TrafficPurpose::gradients)),
      tp_(world.group(group_name(TrafficPurpose::gradients, tensor_group),
                      plan.mesh.group(world.rank(), Axis::tp), lane)),
      copies_(world.group(group_name(TrafficPurpose::gradients, shared_keys_group),
                          copies_of(plan, world.rank()), lane)),
      embedding_(embedding_group(plan, world)),
      packed_(world.device(),
              packed_gradient_rows(plan, plan.stage_of(world.rank()), store.ownership())),
      stream_(world.device(), "gradients", Stream::Mode::queued),
      ops_{.kernels = &kernels_for(world.device()), .stream = &stream_},
      casts_(plan.gradient.dtype != DType::f32) {
  const StagePlan& stage = plan.stage_of(world.rank());
  for (std::size_t i = 0; i < stage.flat.buckets.size(); ++i) {
    const Bucket& bucket = stage.flat.buckets[i];
    Group* replicas = groups_->of_replicas(plan.mesh, world.rank(), bucket.expert);
    const Tensor all = store.made_bucket(static_cast<int>(i));
    Pending& pending = buckets_.emplace_back();
    add_partial(pending, stage, store, bucket);
    switch (stage.shards[static_cast<std::size_t>(bucket.parameters.front())].kind) {
      case ShardKind::rows:
        add_rows(pending, store, bucket, fuses_rows(plan.gradient.buckets));
        break;
      case ShardKind::bucket: {
        const std::int64_t part = all.numel() / replicas->size();
        const std::int64_t begin = replicas->rank() * part;
        add(pending.sums, replicas, nullptr, {{all, all.slice(begin, begin + part)}});
        break;
      }
      default: add(pending.sums, nullptr, replicas, {undivided(all)});
    }
    add_shared(pending, stage, store, bucket);
    if (stage.sums[i].slot < 0) continue;
    pending.made = all;
    add_kept(pending, store, bucket);
  }
}

GradSync::~GradSync() = default;

void GradSync::add(std::vector<Sum>& sums, Group* scatter, Group* group,
                   const std::vector<Divided>& gradients) const {
  if (scatter == nullptr && group == nullptr) return;
  Sum& sum = sums.emplace_back(Sum{scatter, group, {}, {}, {}});
  if (gradients.size() == 1 && !casts_) {
    sum.values = gradients.front();
    return;
  }
  const int ranks = scatter == nullptr ? 1 : scatter->size();
  const int rank = scatter == nullptr ? 0 : scatter->rank();
  Packed packed = pack_scatter(gradients, packed_.at("packed"), ranks, rank);
  sum.values = packed.all;
  sum.in = std::move(packed.in);
  sum.out = std::move(packed.out);
}

void GradSync::add_partial(Pending& pending, const StagePlan& stage, const ParamStore& store,
                           const Bucket& bucket) {
  for (const bool copies : {false, true}) {
    std::vector<Divided> partial;
    for (const int index : bucket.parameters) {
      const ParamSpec& row = stage.parameters[static_cast<std::size_t>(index)];
      if (is_partial(row, copies)) partial.push_back(undivided(store.made_gradient(index)));
    }
    if (!partial.empty()) add(pending.sums, nullptr, (copies ? copies_ : tp_).get(), partial);
  }
}

void GradSync::add_rows(Pending& pending, const ParamStore& store, const Bucket& bucket,
                        bool fused) {
  const OwnershipTable& table = store.ownership();
  for (const std::vector<int>& exchange : row_exchanges(table, bucket.parameters, fused)) {
    const ShardRoute& route = table.route_of(exchange.front());
    std::vector<Divided> gradients;
    for (const int index : exchange) {
      const Ownership& own = table.parameters[static_cast<std::size_t>(index)];
      const Tensor all = store.made_gradient(index);
      gradients.push_back({all.slice(own.scattered.begin, own.scattered.end),
                           all.slice(own.summed.begin, own.summed.end)});
    }
    add(pending.sums, groups_->over(route.scatter_kind, route.scatter),
        groups_->over(route.mirror_kind, route.mirror), gradients);
  }
}

void GradSync::add_shared(Pending& pending, const StagePlan& stage, const ParamStore& store,
                          const Bucket& bucket) {
  for (const int index : bucket.parameters) {
    const auto at = static_cast<std::size_t>(index);
    if (!stage.parameters[at].two_homes) continue;
    if (store.ownership().parameters[at].summed.length() == 0) continue;
    add(pending.shared, nullptr, embedding_.get(), {undivided(store.gradient(index))});
  }
}

void GradSync::add_kept(Pending& pending, const ParamStore& store, const Bucket& bucket) const {
  for (const int index : bucket.parameters) {
    const Slice& summed = store.ownership().parameters[static_cast<std::size_t>(index)].summed;
    if (summed.length() == 0) continue;
    pending.kept.push_back(
        {flat(store.gradient(index)), part_in(store.made_gradient(index), summed)});
  }
}

void GradSync::start(const std::vector<Sum>& sums, Stream& compute) {
  stream_.wait(compute.record());
  for (const Sum& sum : sums) {
    enqueue(sum.in, ops_);
    if (sum.scatter != nullptr) {
      sum.scatter->reduce_scatter(sum.values.whole, sum.values.part, stream_);
    }
    if (sum.group != nullptr) sum.group->all_reduce(sum.values.part, stream_);
    enqueue(sum.out, ops_);
  }
}

void GradSync::reduce(int bucket, int visit, Stream& compute) {
  Pending& pending = buckets_[static_cast<std::size_t>(bucket)];
  start(pending.sums, compute);
  for (const Move& kept : pending.kept) {
    if (visit == 0) {
      enqueue({&kept, 1}, ops_);
    } else {
      in_order(ops_,
               [this, kept] { trainctl::add(ops_, {.a = kept.to, .b = kept.from, .y = kept.to}); });
    }
  }
  if (!pending.made.empty()) stream_.zero(pending.made);
  pending.done = stream_.record();
}

void GradSync::reduce_embedding(int bucket, Stream& compute) {
  Pending& pending = buckets_[static_cast<std::size_t>(bucket)];
  start(pending.shared, compute);
  pending.done = stream_.record();
}

void GradSync::wait(int bucket, Stream& compute, double deadline_seconds) {
  const Event& done = buckets_[static_cast<std::size_t>(bucket)].done;
  continue_after(compute, done, deadline_seconds,
                 [&] { return formatted("the sum of gradient bucket {}", bucket); });
}

namespace {

std::vector<SlabRow> packed_parameter_rows(const Plan& plan, const StagePlan& stage,
                                           const OwnershipTable& table) {
  const std::int64_t most = packed_parameters(plan, stage, table);
  if (most == 0) return {};
  return {{"packed", Shape{most}, DType::u8}};
}

}  // namespace

struct ParamSync::Gather {
  Group* group = nullptr;
  Divided values;
  std::vector<Move> in, out;  // copies for weights packed in one buffer
};

struct ParamSync::Send {
  Group* group = nullptr;
  int owner = 0;  // rank in the group
  Tensor whole;
};

struct ParamSync::Block {
  std::vector<Move> own;  // copies of masters to their places in a block that does not stay
  std::vector<Gather> gathers;
  std::vector<Send> sends;
  Tensor here, host;        // weights of a block that is kept on the host
  bool host_knows = false;  // the host has the weights of the last update
  Event done;
};

ParamSync::ParamSync(const Plan& plan, const ParamStore& store, const DeviceWorld& world,
                     const OpContext& queue)
    : stage_(plan.stage_of(world.rank())),
      groups_(std::make_unique<GroupMap>(world, TrafficPurpose::parameters)),
      queue_(queue),
      packed_(world.device(), packed_parameter_rows(plan, stage_, store.ownership())) {
  const auto replicas = [&](int index) {
    return groups_->of_replicas(plan.mesh, world.rank(), at(stage_.parameters, index).expert);
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

ParamSync::~ParamSync() = default;

Tensor ParamSync::packed(std::int64_t elements, DType type) const {
  const Tensor all = packed_.at("packed");
  return {all.data, Shape{elements}, type, all.device};
}

/// Gathers the block's weights as one range. Weights of another type are gathered separately, each
/// rank's share padded to the largest one.
void ParamSync::add_slices(Block& block, const Plan& plan, const ParamStore& store, int number,
                           Group& replicas) {
  const GatherBlock& planned = at(stage_.gathers, number);
  const std::int64_t ranks = replicas.size();
  const Tensor whole = store.block_weights(number);
  const std::int64_t part = whole.numel() / ranks;
  const std::int64_t begin = replicas.rank() * part;
  block.gathers.push_back({&replicas, {whole, whole.slice(begin, begin + part)}, {}, {}});
  const std::int64_t most = max_apart(plan.compute, stage_, planned, ranks);
  if (most == 0) return;
  const Tensor all = packed(ranks * most, DType::f32);
  const std::int64_t own = replicas.rank() * most;
  Gather& gather =
      block.gathers.emplace_back(Gather{&replicas, {all, all.slice(own, own + most)}, {}, {}});
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t place = rank * most;
    for (const auto& [index, apart] : parts_apart(plan.compute, stage_, planned, ranks, rank)) {
      const std::int64_t length = apart.length();
      const Tensor weight = part_in(store.resident(index), apart);
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
  for (const std::vector<int>& exchange : row_gathers(plan, stage_, table, planned)) {
    const ShardRoute& route = table.route_of(exchange.front());
    Gather& gather = block.gathers.emplace_back();
    gather.group = groups_->over(route.gather_kind, route.gather);
    std::vector<Divided> weights;
    std::int64_t elements = 0;
    for (const int index : exchange) {
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
                 [&] { return formatted("gather {} of parameters", block); });
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
