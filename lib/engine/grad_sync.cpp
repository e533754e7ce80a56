#include "engine/grad_sync.h"

#include <algorithm>
#include <cassert>

#include "comm/await.h"

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

bool is_partial(const ParamSpec& row, bool copies) {
  return copies ? row.tp_copies > 1 : row.gradient_sum[static_cast<std::size_t>(Axis::tp)];
}

std::unique_ptr<Group> embedding_group(const Plan& plan, World& world) {
  const std::vector<int> stages = plan.mesh.group(world.rank(), Axis::pp);
  if (world.rank() != stages.front() && world.rank() != stages.back()) return nullptr;
  std::vector<int> ends{stages.front()};
  if (stages.size() > 1) ends.push_back(stages.back());
  return world.group("gradients embedding", ends);
}

std::int64_t partial_elements(const StagePlan& stage, const Bucket& bucket, bool copies) {
  std::int64_t count = 0;
  for (const int index : bucket.parameters) {
    const ParamSpec& row = stage.parameters[static_cast<std::size_t>(index)];
    if (is_partial(row, copies)) count += row.shape.numel();
  }
  return count;
}

std::vector<SlabRow> packed_rows(const StagePlan& stage) {
  std::int64_t most = 0;
  for (const Bucket& bucket : stage.flat.buckets) {
    for (const bool copies : {false, true}) {
      most = std::max(most, partial_elements(stage, bucket, copies));
    }
  }
  if (most == 0) return {};
  return {{"packed", Shape{most}, DType::f32}};
}

}  // namespace

GradSync::GradSync(const Plan& plan, const ParamStore& store, World& world, DeviceKind device)
    : replicas_(world.group("gradients dp", plan.mesh.group(world.rank(), {Axis::cp, Axis::dp}))),
      tp_(world.group("gradients tp", plan.mesh.group(world.rank(), Axis::tp))),
      copies_(world.group("gradients kv", copies_of(plan, world.rank()))),
      embedding_(embedding_group(plan, world)),
      packed_(device, packed_rows(plan.stage_of(world.rank()))),
      stream_(device, "gradients", Stream::Mode::queued) {
  const StagePlan& stage = plan.stage_of(world.rank());
  for (std::size_t i = 0; i < stage.flat.buckets.size(); ++i) {
    const Bucket& bucket = stage.flat.buckets[i];
    Pending& pending = buckets_.emplace_back();
    pending.gradients = store.bucket(static_cast<int>(i));
    pending.scatters = scatters(stage, store, bucket);
    for (const int index : bucket.parameters) {
      if (stage.parameters[static_cast<std::size_t>(index)].two_homes) {
        pending.shared = store.gradient(index);
      }
    }
    for (const bool copies : {false, true}) {
      if (partial_elements(stage, bucket, copies) == 0) continue;
      Group* group = copies ? copies_.get() : tp_.get();
      pending.partial.push_back(pack(stage, store, bucket, group, copies));
    }
  }
}

std::vector<GradSync::Scatter> GradSync::scatters(const StagePlan& stage, const ParamStore& store,
                                                  const Bucket& bucket) const {
  std::vector<Scatter> made;
  for (const int index : bucket.parameters) {
    if (stage.shards[static_cast<std::size_t>(index)].kind != ShardKind::rows) continue;
    const Tensor gradient = store.gradient(index);
    const std::int64_t part = gradient.numel() / replicas_->size();
    const Tensor flat = gradient.view({gradient.numel()});
    const std::int64_t begin = replicas_->rank() * part;
    made.push_back({flat, flat.slice(begin, begin + part)});
  }
  assert(made.empty() || made.size() == bucket.parameters.size());
  return made;
}

GradSync::Packed GradSync::pack(const StagePlan& stage, const ParamStore& store,
                                const Bucket& bucket, Group* group, bool copies) const {
  Packed made{.group = group, .gradients = {}, .places = {}, .all = {}};
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

void GradSync::reduce(int bucket, Stream& compute) {
  Pending& pending = buckets_[static_cast<std::size_t>(bucket)];
  stream_.wait(compute.record());
  for (const Packed& part : pending.partial) {
    for (std::size_t i = 0; i < part.gradients.size(); ++i) {
      stream_.copy(part.places[i], part.gradients[i]);
    }
    part.group->all_reduce(part.all, stream_);
    for (std::size_t i = 0; i < part.gradients.size(); ++i) {
      stream_.copy(part.gradients[i], part.places[i]);
    }
  }
  for (const Scatter& scatter : pending.scatters) {
    replicas_->reduce_scatter(scatter.gradient, scatter.slice, stream_);
  }
  if (pending.scatters.empty()) replicas_->all_reduce(pending.gradients, stream_);
  pending.done = stream_.record();
}

void GradSync::reduce_embedding(int bucket, Stream& compute) {
  Pending& pending = buckets_[static_cast<std::size_t>(bucket)];
  stream_.wait(compute.record());
  embedding_->all_reduce(pending.shared, stream_);
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
