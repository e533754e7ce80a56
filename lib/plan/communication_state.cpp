#include <algorithm>

#include "plan/communication.h"
#include "plan/flat_layout.h"
#include "plan/ownership.h"
#include "plan/resolve.h"

namespace trainctl {

namespace {

constexpr std::int64_t fp32 = 4;

/// What becomes of one bucket's elements.
struct BucketUse {
  std::int64_t summed = 0;     // all-reduced
  std::int64_t scattered = 0;  // reduced to the ranks that own them, and gathered as parameters
  std::int64_t mirrored = 0;   // slices that several groups hold
  std::int64_t dealt = 0;      // parameters that their owners send to all
  std::int64_t dealt_count = 0;
  std::int64_t rows = 0;  // parameters cut by rows
};

BucketUse use_of(const Bucket& bucket, const StagePlan& stage) {
  BucketUse use;
  std::int64_t whole = 0;
  for (const int index : bucket.parameters) {
    const auto at = static_cast<std::size_t>(index);
    const std::int64_t numel = stage.parameters[at].shape.numel();
    const OptimizerShard& shard = stage.shards[at];
    const bool cut = shard.kind == ShardKind::rows || shard.kind == ShardKind::bucket;
    (cut ? use.scattered : whole) += numel;
    use.rows += shard.kind == ShardKind::rows ? 1 : 0;
    if (shard.kind == ShardKind::rows && shard.mirrors > 1) use.mirrored += shard.elements;
    if (shard.kind == ShardKind::dealt) {
      use.dealt += numel;
      ++use.dealt_count;
    }
  }
  if (use.rows > 0) return use;  // without the bucket's padding
  if (whole == 0) use.scattered = bucket.length;
  use.summed = bucket.length - use.scattered;
  return use;
}

/// Sharded parameters by comm_fusion.allgather, which fuses them in the order of the forward.
void add_fused_gathers(UseList& list, bool expert, const std::string& group) {
  std::vector<std::int64_t> elements;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < list.stage().shards.size(); ++i) {
    const ParamSpec& row = list.stage().parameters[i];
    if (list.stage().shards[i].kind != ShardKind::rows || row.expert != expert) continue;
    elements.push_back(row.shape.numel());
    total += row.shape.numel();
  }
  if (elements.empty()) return;
  const CommFusionConfig& fusion = list.config().parallel.comm_fusion;
  const std::vector<int> blocks = fusion_blocks(elements, fusion_threshold(fusion.allgather));
  const std::int64_t count =
      fusion.openstate ? blocks.back() + 1 : static_cast<std::int64_t>(elements.size());
  list.add_total({"all_gather", "parameters", "parameters", group}, count, total * fp32);
}

/// Rows, parameter by parameter: the sums of their gradients, and their masters over the ranks that
/// share a copy of the state.
void add_rows(UseList& list, bool expert, std::int64_t sums) {
  const StagePlan& stage = list.stage();
  const OwnershipTable table = make_ownership(list.plan(), list.rank());
  for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
    const Ownership& own = table.parameters[i];
    if (own.route < 0 || stage.parameters[i].expert != expert) continue;
    const ShardRoute& route = table.routes[static_cast<std::size_t>(own.route)];
    const auto bytes = [&](const Slice& slice) {
      return (slice.end - slice.begin) * list.gradient();
    };
    list.add(
        {"reduce_scatter", "gradients", "gradients", route.scatter_kind, std::ssize(route.scatter)},
        sums, bytes(own.scattered));
    list.add(
        {"all_reduce", "gradient slices", "gradients", route.mirror_kind, std::ssize(route.mirror)},
        sums, bytes(own.summed));
    list.add(
        {"all_gather", "parameters", "parameters", route.gather_kind, std::ssize(route.gather)}, 1,
        stage.parameters[i].shape.numel() * fp32);
  }
}

/// What the ranks with the same parameters exchange, of dense ones or of experts.
void add_replicas(UseList& list, bool expert) {
  const Plan& plan = list.plan();
  const StagePlan& stage = list.stage();
  const std::string group = expert ? "expert:dp" : replicas_kind(plan.mesh);
  const BucketRule rule = plan.gradient.buckets;
  const bool each = list.config().hooks.no_sync == NoSync::never;
  if (rule == BucketRule::size) {
    add_rows(list, expert, each || plan.accumulates_slices ? plan.microbatches : 1);
  }
  if (rule == BucketRule::comm_fusion) add_fused_gathers(list, expert, group);
  for (const Bucket& bucket : stage.flat.buckets) {
    if (bucket.expert != expert) continue;
    const BucketUse use = use_of(bucket, stage);
    if (rule == BucketRule::size && use.rows > 0) continue;  // has no other parameters
    const std::int64_t sums = each ? plan.microbatches : 1;
    const std::int64_t scatters =
        use.rows > 0 && plan.accumulates_slices ? plan.microbatches : sums;
    list.add({"all_reduce", "gradients", "gradients", group}, sums, use.summed * list.gradient());
    list.add({"reduce_scatter", "gradients", "gradients", group}, scatters,
             use.scattered * list.gradient());
    list.add({"all_reduce", "gradient slices", "gradients", group}, 1,
             use.mirrored * list.gradient());
    const bool by_bucket = use.rows == 0 || rule == BucketRule::layers;
    const UseList::Call gather{"all_gather", "parameters", "parameters", group};
    if (by_bucket) list.add(gather, 1, use.scattered * fp32);
    list.add_total({"broadcast", "parameters", "parameters", group}, use.dealt_count,
                   use.dealt * fp32);
  }
}

/// Gradients that ranks with different shards hold parts of, bucket by bucket.
void add_shared_gradients(UseList& list) {
  for (const Bucket& bucket : list.stage().flat.buckets) {
    const auto partial = [&](bool copies) {
      return partial_elements(list.stage().parameters, bucket, copies) * list.gradient();
    };
    list.add({"all_reduce", "replicated gradients", "gradients", "tp"}, 1, partial(false));
    list.add({"all_reduce", "shared keys and values", "gradients", "kv"}, 1, partial(true));
    for (const int index : bucket.parameters) {
      const ParamSpec& row = list.stage().parameters[static_cast<std::size_t>(index)];
      if (!row.two_homes) continue;
      list.add({"all_reduce", "tied embedding", "gradients", "embedding"}, 1,
               row.shape.numel() * list.gradient());
    }
  }
}

/// Two numbers of every rank, for every rank.
void add_pairs(UseList& list, const std::string& what) {
  constexpr std::int64_t pair = 2 * 8;
  const std::int64_t ranks = list.plan().mesh.world_size();
  list.add({"all_gather", what, "scalars", "world"}, 1, ranks * pair);
}

/// The loss with the wish to stop, the weights that it is divided by, and the gradient's squares,
/// those of the norm apart from those that are only looked at: gathered, and added on each rank in
/// the same order.
void add_scalars(UseList& list) {
  add_pairs(list, "loss");
  if (list.config().data.eod_mask_loss) add_pairs(list, "loss weights");
  add_pairs(list, "gradient norm");
}

}  // namespace

void add_state(UseList& list) {
  add_replicas(list, false);
  add_replicas(list, true);
  add_shared_gradients(list);
  add_scalars(list);
}

}  // namespace trainctl
