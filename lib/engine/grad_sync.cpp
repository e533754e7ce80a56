#include "engine/grad_sync.h"

#include <algorithm>
#include <cassert>

#include "comm/await.h"
#include "ops/cast.h"
#include "ops/kernels.h"
#include "plan/flat_layout.h"

namespace trainctl {

namespace {

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

std::unique_ptr<Group> embedding_group(const Plan& plan, World& world) {
  const std::vector<int> stages = plan.mesh.group(world.rank(), Axis::pp);
  if (world.rank() != stages.front() && world.rank() != stages.back()) return nullptr;
  std::vector<int> ends{stages.front()};
  if (stages.size() > 1) ends.push_back(stages.back());
  return world.group("gradients embedding", ends);
}

/// Where gradients lie on their way, for one sum at a time.
std::vector<SlabRow> packed_rows(const Plan& plan, const StagePlan& stage) {
  const std::int64_t most =
      packed_elements(stage.parameters, stage.flat, plan.gradient.dtype != DType::f32);
  if (most == 0) return {};
  return {{"packed", Shape{most}, plan.gradient.dtype}};
}

}  // namespace

GradSync::GradSync(const Plan& plan, const ParamStore& store, World& world, DeviceKind device)
    : world_(world),
      replicas_(world.group("gradients dp", plan.mesh.group(world.rank(), {Axis::cp, Axis::dp}))),
      tp_(world.group("gradients tp", plan.mesh.group(world.rank(), Axis::tp))),
      copies_(world.group("gradients kv", copies_of(plan, world.rank()))),
      embedding_(embedding_group(plan, world)),
      packed_(device, packed_rows(plan, plan.stage_of(world.rank()))),
      stream_(device, "gradients", Stream::Mode::queued),
      ops_{.kernels = &kernels_for(device), .stream = &stream_},
      casts_(plan.gradient.dtype != DType::f32) {
  const StagePlan& stage = plan.stage_of(world.rank());
  for (std::size_t i = 0; i < stage.flat.buckets.size(); ++i) {
    const Bucket& bucket = stage.flat.buckets[i];
    Pending& pending = buckets_.emplace_back();
    pending.replicas = sum_of(replicas_.get(), store.bucket(static_cast<int>(i)));
    pending.scatters = scatters(stage, store, static_cast<int>(i));
    for (const int index : bucket.parameters) {
      const auto at = static_cast<std::size_t>(index);
      if (!stage.parameters[at].two_homes) continue;
      const Slice summed = store.ownership().parameters[at].summed;
      const Tensor gradient = store.gradient(index);
      pending.shared = sum_of(embedding_.get(),
                              gradient.view({gradient.numel()}).slice(summed.begin, summed.end));
    }
    for (const bool copies : {false, true}) {
      if (partial_elements(stage.parameters, bucket, copies) == 0) continue;
      Group* group = copies ? copies_.get() : tp_.get();
      pending.partial.push_back(pack(stage, store, bucket, group, copies));
    }
  }
}

Group* GradSync::group_over(const std::string& kind, const std::vector<int>& ranks) {
  if (ranks.size() == 1) return nullptr;
  if (ranks.size() == static_cast<std::size_t>(replicas_->size())) return replicas_.get();
  std::unique_ptr<Group>& group = shards_[ranks];
  if (!group) group = world_.group("gradients " + kind, ranks);
  return group.get();
}

std::vector<GradSync::Scatter> GradSync::scatters(const StagePlan& stage, const ParamStore& store,
                                                  int bucket) {
  const std::vector<int>& parameters =
      stage.flat.buckets[static_cast<std::size_t>(bucket)].parameters;
  std::vector<Scatter> made;
  if (stage.shards[static_cast<std::size_t>(parameters.front())].kind == ShardKind::bucket) {
    const Tensor all = store.bucket(bucket);
    const std::int64_t part = all.numel() / replicas_->size();
    const std::int64_t begin = replicas_->rank() * part;
    made.push_back({replicas_.get(), {}, all, all.slice(begin, begin + part)});
    return made;
  }
  const OwnershipTable& table = store.ownership();
  for (const int index : parameters) {
    const Ownership& own = table.parameters[static_cast<std::size_t>(index)];
    if (own.route < 0) continue;
    const ShardRoute& route = table.routes[static_cast<std::size_t>(own.route)];
    const Tensor gradient = store.gradient(index);
    const Tensor all = gradient.view({gradient.numel()});
    const Tensor summed = all.slice(own.summed.begin, own.summed.end);
    made.push_back({group_over(route.scatter_kind, route.scatter),
                    sum_of(group_over(route.mirror_kind, route.mirror), summed),
                    all.slice(own.scattered.begin, own.scattered.end), summed});
  }
  assert(made.empty() || made.size() == parameters.size());
  return made;
}

GradSync::Sum GradSync::sum_of(Group* group, const Tensor& gradients) const {
  if (!casts_ || group == nullptr || group->size() == 1) {
    return {.group = group, .gradients = {}, .places = {}, .all = gradients};
  }
  const Tensor place = packed_.at("packed").slice(0, gradients.numel());
  return {.group = group, .gradients = {gradients}, .places = {place}, .all = place};
}

GradSync::Sum GradSync::pack(const StagePlan& stage, const ParamStore& store, const Bucket& bucket,
                             Group* group, bool copies) const {
  Sum made{.group = group, .gradients = {}, .places = {}, .all = {}};
  const Tensor buffer = packed_.at("packed");
  std::int64_t end = 0;
  for (const int index : bucket.parameters) {
    const ParamSpec& row = stage.parameters[static_cast<std::size_t>(index)];
    if (!is_partial(row, copies)) continue;
    const std::int64_t count = row.shape.numel();
    made.gradients.push_back(store.gradient(index).view({count}));
    made.places.push_back(buffer.slice(end, end + count));
    end += count;
  }
  made.all = buffer.slice(0, end);
  return made;
}

void GradSync::move(const Tensor& to, const Tensor& from) {
  if (!casts_) return stream_.copy(to, from);
  stream_.enqueue(Task([ops = &ops_, to, from] { cast(*ops, {.x = from, .y = to}); }));
}

void GradSync::run(const Sum& sum) {
  for (std::size_t i = 0; i < sum.gradients.size(); ++i) move(sum.places[i], sum.gradients[i]);
  sum.group->all_reduce(sum.all, stream_);
  for (std::size_t i = 0; i < sum.gradients.size(); ++i) move(sum.gradients[i], sum.places[i]);
}

void GradSync::run(const Scatter& scatter) {
  Group* group = scatter.scatter;
  if (group != nullptr && !casts_) {
    group->reduce_scatter(scatter.gradient, scatter.slice, stream_);
  } else if (group != nullptr) {
    const std::int64_t part = scatter.slice.numel();
    const Tensor whole = packed_.at("packed").slice(0, scatter.gradient.numel());
    const Tensor own = whole.slice(group->rank() * part, (group->rank() + 1) * part);
    move(whole, scatter.gradient);
    group->reduce_scatter(whole, own, stream_);
    move(scatter.slice, own);
  }
  if (scatter.mirror.group != nullptr) run(scatter.mirror);
}

void GradSync::reduce(int bucket, Stream& compute) {
  Pending& pending = buckets_[static_cast<std::size_t>(bucket)];
  stream_.wait(compute.record());
  for (const Sum& part : pending.partial) run(part);
  for (const Scatter& scatter : pending.scatters) run(scatter);
  if (pending.scatters.empty()) run(pending.replicas);
  pending.done = stream_.record();
}

void GradSync::reduce_embedding(int bucket, Stream& compute) {
  Pending& pending = buckets_[static_cast<std::size_t>(bucket)];
  stream_.wait(compute.record());
  if (pending.shared.all.numel() > 0) run(pending.shared);
  pending.done = stream_.record();
}

void GradSync::wait(int bucket, Stream& compute, double deadline_seconds) {
  const Event& done = buckets_[static_cast<std::size_t>(bucket)].done;
  // The host waits as well: a failed reduction must stop this rank here, with the group's own
  // message.
  await(done, deadline_seconds, [&] {
    return "the sum of gradient bucket " + std::to_string(bucket) + " over group '" +
           replicas_->name() + "'";
  });
  compute.wait(done);
}

}  // namespace trainctl
