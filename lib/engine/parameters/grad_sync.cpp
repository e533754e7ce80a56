#include "engine/parameters/grad_sync.h"

#include <algorithm>

#include "comm/await.h"
#include "ops/elementwise.h"
#include "ops/kernels.h"
#include "plan/gradients/buckets.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

namespace {

constexpr WireUse lane{.lane = Lane::gradients};

std::int64_t most_copies(const StagePlan& stage) {
  std::int64_t most = 1;
  for (const ParamSpec& row : stage.parameters) most = std::max(most, row.tp_copies);
  return most;
}

/// Neighbouring tensor-parallel ranks that hold the same key and value heads.
std::vector<int> copies_of(const Plan& plan, std::int64_t rank) {
  const std::int64_t copies = most_copies(plan.stage_of(rank));
  const std::vector<int> tp = plan.mesh.group(rank, Axis::tp);
  const std::int64_t first = plan.mesh.coordinate(rank, Axis::tp) / copies * copies;
  return {tp.begin() + first, tp.begin() + first + copies};
}

std::unique_ptr<Group> embedding_group(const Plan& plan, const DeviceWorld& world) {
  const std::vector<int> homes = embedding_homes(plan, world.rank());
  const bool here = std::find(homes.begin(), homes.end(), world.rank()) != homes.end();
  if (!here) return nullptr;
  return world.group(group_name(TrafficPurpose::gradients, embedding_kind), homes, lane);
}

/// Where gradients lie on their way, for one sum at a time.
std::vector<SlabRow> packed_gradient_rows(const Plan& plan, const StagePlan& stage,
                                          const OwnershipTable& table) {
  const std::int64_t most = packed_gradients(plan, stage, table);
  if (most == 0) return {};
  return {{"packed", Shape{most}, plan.gradient.dtype}};
}

Divided undivided(const Tensor& gradient) { return {flat(gradient), flat(gradient)}; }

}  // namespace

GradSync::GradSync(const Plan& plan, const ParamStore& store, const DeviceWorld& world)
    : groups_(world, TrafficPurpose::gradients),
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
    Group* replicas = groups_.of_replicas(plan.mesh, world.rank(), bucket.expert);
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
  for (const RowExchange& exchange : row_exchanges(table, bucket.parameters, fused)) {
    const ShardRoute& route = table.routes[static_cast<std::size_t>(exchange.route)];
    std::vector<Divided> gradients;
    for (const int index : exchange.parameters) {
      const Ownership& own = table.parameters[static_cast<std::size_t>(index)];
      const Tensor all = store.made_gradient(index);
      gradients.push_back({all.slice(own.scattered.begin, own.scattered.end),
                           all.slice(own.summed.begin, own.summed.end)});
    }
    add(pending.sums, groups_.over(route.scatter_kind, route.scatter),
        groups_.over(route.mirror_kind, route.mirror), gradients);
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
                 [&] { return "the sum of gradient bucket " + std::to_string(bucket); });
}

}  // namespace trainctl
