#include "plan/cost/lay_moves.h"

#include <algorithm>

#include "base/at.h"
#include "plan/gradients/gathers.h"

namespace trainctl {

namespace {

/// Sets, for each bucket, which rows add to it, and whether its sum is repeated in a step.
void set_sums(const Plan& plan, StagePlan& rows, NoSync no_sync) {
  const int head = head_unit(plan.model.layers);
  const bool has_head = holds(rows.units, head);
  rows.sums = bucket_sums(rows.flat, rows.parameters);
  for (std::size_t i = 0; i < rows.sums.size(); ++i) {
    BucketSum& sum = rows.sums[i];
    bool scattered = false;
    for (const int index : rows.flat.buckets[i].parameters) {
      const ParamSpec& row = at(rows.parameters, index);
      const ShardKind kind = at(rows.shards, index).kind;
      scattered = scattered || kind == ShardKind::rows || kind == ShardKind::bucket;
      const bool tied = plan.model.tied && row.kind == ParamKind::token_embedding;
      if (has_head && (tied || row.unit == head)) sum.head = head;
    }
    const bool divided = scattered && plan.optimizer_level != OptimizerLevel::level1;
    const bool each = no_sync == NoSync::never && plan.microbatches > 1;
    const bool rounded = plan.gradient.kept != DType::f32;
    sum.reduced = sum.reduced || rounded;
    sum.repeated = sum.reduced && (divided || each || rounded);
  }
}

/// By parameter: whether its weight is gathered for each use.
std::vector<bool> freed_weights(const Plan& plan, const StagePlan& rows,
                                const RecomputeConfig& recompute) {
  const bool again = recompute.enable && recompute.parallel_optimizer_comm_recompute;
  std::vector<bool> freed;
  for (const ParamSpec& row : rows.parameters) {
    const auto form = rows.forms.usual.find(row.unit);
    const bool repeated = form != rows.forms.usual.end() && form->second.repeats();
    freed.push_back(plan.optimizer_level == OptimizerLevel::level3 || (again && repeated));
  }
  return freed;
}

/// By parameter: whether its weight is on the host between its uses. Those that are themselves
/// masters the optimizer needs on the device.
std::vector<bool> host_weights(const Plan& plan, const StagePlan& rows,
                               const OffloadConfig& offload) {
  std::vector<bool> on_host;
  if (!offload.enable || !offload.weights) return on_host;
  for (const ParamSpec& row : rows.parameters) {
    const bool layer = row.unit > 0 && row.unit <= offload.num_layers;
    on_host.push_back(layer && read_type(row, plan.compute) != row.master);
  }
  return on_host;
}

/// The blocks as the rows see them, and their sizes in bytes.
std::vector<std::int64_t> set_reads(const Plan& plan, StagePlan& rows) {
  const int head = head_unit(plan.model.layers);
  std::vector<std::int64_t> sizes;
  rows.reads.clear();
  for (const GatherBlock& block : rows.gathers) {
    ReadBlock& read = rows.reads.emplace_back(ReadBlock{block.units, -1, block.freed});
    for (const int index : block.parameters) {
      const bool table = at(rows.parameters, index).kind == ParamKind::token_embedding;
      if (table && plan.model.tied && holds(rows.units, head)) read.also = head;
    }
    const Bucket* bucket = block.bucket < 0 ? nullptr : &at(rows.flat.buckets, block.bucket);
    sizes.push_back(
        lay_residents(block.parameters, rows.parameters, rows.flat, bucket, plan.compute).bytes);
  }
  return sizes;
}

}  // namespace

void lay_moves(const Plan& plan, const ScheduleInput& input, const MoveConfig& config,
               StagePlan& rows, const StagePlan* like) {
  rows.gathers = make_gathers(
      rows.parameters, rows.shards, rows.flat, plan.gradient.buckets, config.parallel.comm_fusion,
      freed_weights(plan, rows, config.recompute), host_weights(plan, rows, config.offload));
  set_sums(plan, rows, config.hooks.no_sync);
  for (std::size_t i = 0; like != nullptr && i < rows.sums.size(); ++i) {
    rows.sums[i].repeated = like->sums[i].repeated;
  }
  const std::vector<std::int64_t> block_sizes = set_reads(plan, rows);
  rows.actions = refine(rows.schedule, input, rows.sums, rows.reads, config.hooks.param_sync,
                        config.hooks.grad_sync == GradSyncStart::overlap);
  const int buffered = config.offload.double_buffering ? 1 : 0;
  rows.actions = copy_to_host(rows.actions, input, buffered);
  // Weights come from other ranks or from the host (the rule offload-weights).
  const auto prefetched = static_cast<int>(config.parallel.parallel_optimizer.prefetch);
  const bool from_host = std::ranges::any_of(rows.gathers, &GatherBlock::from_host);
  rows.actions = gather_freed(rows.actions, rows.reads, from_host ? buffered : prefetched);
  if (like != nullptr) {  // the proof says whether these hold for the rows
    rows.weight_ring = like->weight_ring;
    rows.gradient_ring = like->gradient_ring;
  } else {
    std::vector<std::int64_t> bucket_sizes;
    for (const Bucket& bucket : rows.flat.buckets) bucket_sizes.push_back(bucket.length);
    rows.weight_ring = weight_ring(rows.actions, rows.reads, block_sizes);
    rows.gradient_ring = gradient_ring(rows.actions, rows.sums, bucket_sizes);
  }
  for (std::size_t i = 0; i < rows.reads.size(); ++i) {
    rows.reads[i].slot = rows.weight_ring.slot[i];
  }
  for (std::size_t i = 0; i < rows.sums.size(); ++i) {
    rows.sums[i].slot = rows.gradient_ring.slot[i];
  }
  rows.actions = await_slots(rows.actions, rows.sums);
}

}  // namespace trainctl
