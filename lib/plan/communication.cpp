#include <algorithm>
#include <vector>

#include "plan/activation_memory.h"
#include "plan/estimate.h"
#include "plan/flat_layout.h"
#include "plan/ownership.h"
#include "plan/resolve.h"

namespace trainctl {

namespace {

constexpr std::int64_t fp32 = 4;

std::string_view word_for(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter_tokens:
    case Collective::reduce_scatter_features: return "reduce_scatter";
    case Collective::all_gather_tokens:
    case Collective::all_gather_features: return "all_gather";
    case Collective::all_to_all: return "all_to_all";
    default: return "";
  }
}

/// Collects what one rank of a stage sends in a step. Bytes are those of the whole tensor: what an
/// all-gather makes, what a reduce-scatter takes.
class Traffic {
 public:
  Traffic(const Plan& plan, const StagePlan& stage, const Config& config)
      : plan_(plan), stage_(stage), config_(config) {}

  /// `count` collectives of `bytes` each.
  void add(const std::string& name, const std::string& group, std::int64_t count,
           std::int64_t bytes) {
    add_total(name, group, count, count * bytes);
  }
  /// `bytes` in all.
  void add_total(const std::string& name, const std::string& group, std::int64_t count,
                 std::int64_t bytes) {
    if (count == 0 || bytes == 0) return;
    const auto same = std::find_if(uses_.begin(), uses_.end(), [&](const CollectiveUse& use) {
      return use.name == name && use.group == group;
    });
    if (same == uses_.end()) {
      uses_.push_back({name, group, count, bytes});
    } else {
      same->count += count;
      same->bytes += bytes;
    }
  }
  /// The collective of plan/layout.h between two layouts over tp, of a tensor [rows, features].
  void reshard(Layout from, Layout to, const std::string& what, std::int64_t count,
               std::int64_t elements) {
    const Collective collective = transition(from, to).value_or(Collective::none);
    const bool sums = from == Layout::partial;
    const std::int64_t size = sums && plan_.fp32_sums ? fp32 : element();
    const std::string word(word_for(collective));
    if (!word.empty()) add(word + " " + what, "tp", count, elements * size);
  }

  const Plan& plan() const { return plan_; }
  const StagePlan& stage() const { return stage_; }
  const Config& config() const { return config_; }
  /// The first one of the stage.
  std::int64_t rank() const {
    return (&stage_ - plan_.stages.data()) * plan_.mesh.stride(Axis::pp);
  }
  std::int64_t element() const { return size_of(plan_.compute); }
  std::int64_t gradient() const { return size_of(plan_.gradient.dtype); }
  std::int64_t tokens() const {
    return plan_.micro_batch_size * plan_.model.seq_length / plan_.mesh.cp;
  }
  std::int64_t stream_rows() const {
    return plan_.sequence_parallel ? tokens() / plan_.mesh.tp : tokens();
  }
  Layout stream() const { return plan_.sequence_parallel ? Layout::tokens : Layout::invariant; }
  bool holds(int unit) const {
    return std::any_of(stage_.units.begin(), stage_.units.end(), [&](const UnitRange& range) {
      return range.begin <= unit && unit < range.end;
    });
  }
  std::int64_t blocks() const {
    std::int64_t count = 0;
    for (int unit = 1; unit <= plan_.model.layers; ++unit) count += holds(unit) ? 1 : 0;
    return count;
  }
  std::vector<CollectiveUse> take() { return std::move(uses_); }

 private:
  const Plan& plan_;
  const StagePlan& stage_;
  const Config& config_;
  std::vector<CollectiveUse> uses_;
};

/// How often the forward and the backward of the stage's blocks run in a step.
struct Passes {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};

Passes passes_of(const Traffic& traffic, int number) {
  const std::int64_t blocks = traffic.blocks();
  const ActivationSavings savings = activation_savings(traffic.plan(), number, traffic.config());
  const bool again = traffic.config().recompute.mp_comm_recompute;
  const std::int64_t twice = again ? std::min(blocks, savings.recomputed_layers) : 0;
  const std::int64_t microbatches = traffic.plan().microbatches;
  return {(blocks + twice) * microbatches, blocks * microbatches};
}

/// A region between enter (stream -> replicated) and leave (partial -> stream), and their duals. A
/// weight gradient needs its gathered input once more.
void add_region(Traffic& traffic, const Passes& passes, const std::string& what) {
  const std::int64_t elements = traffic.tokens() * traffic.plan().model.hidden;
  const Layout stream = traffic.stream();
  traffic.reshard(stream, Layout::replicated, what, passes.forward, elements);
  traffic.reshard(Layout::partial, stream, what, passes.forward, elements);
  traffic.reshard(dual(stream), dual(Layout::partial), what, passes.backward, elements);
  traffic.reshard(dual(Layout::replicated), dual(stream), what, passes.backward, elements);
  if (stream == Layout::tokens) {
    traffic.reshard(stream, Layout::replicated, what, passes.backward, elements);
  }
}

void add_vocabulary(Traffic& traffic) {
  const Plan& plan = traffic.plan();
  if (!plan.split_vocabulary) return;
  const std::int64_t elements = traffic.tokens() * plan.model.hidden;
  const Layout stream = traffic.stream();
  const std::int64_t count = plan.microbatches;
  if (traffic.holds(0)) {
    traffic.reshard(Layout::partial, stream, "embedding", count, elements);
    traffic.reshard(dual(stream), dual(Layout::partial), "embedding", count, elements);
  }
  if (!traffic.holds(plan.units() - 1)) return;
  traffic.reshard(stream, Layout::replicated, "head", count, elements);
  traffic.reshard(dual(Layout::replicated), dual(stream), "head", count, elements);
  // Of each token the largest logit, the sum of exponentials and the label's logit, for each chunk
  // of the head.
  ModelShape local = plan.model;
  local.padded_vocab /= plan.mesh.tp;
  const std::int64_t chunk = head_chunk(local, traffic.tokens(), plan.compute);
  const std::int64_t chunks = (traffic.tokens() + chunk - 1) / chunk;
  traffic.add_total("all_gather head statistics", "tp", count * chunks,
                    count * 3 * plan.mesh.tp * traffic.tokens() * fp32);
}

/// Keys and values over cp. The ring passes them on cp - 1 times, and in backward their gradients
/// with them.
void add_context(Traffic& traffic, const Passes& passes) {
  const Plan& plan = traffic.plan();
  const std::int64_t cp = plan.mesh.cp;
  if (cp == 1) return;
  const std::int64_t kv_heads = std::max<std::int64_t>(1, plan.model.kv_heads / plan.mesh.tp);
  const std::int64_t size = traffic.tokens() * plan.model.head_dim * traffic.element();
  const std::int64_t pair = 2 * size * kv_heads;
  const std::int64_t queries = 2 * size * (plan.model.heads / plan.mesh.tp);
  const auto ring = [&](std::int64_t ranks) {
    traffic.add("send_receive keys and values", "cp", passes.forward * (ranks - 1), pair);
    traffic.add("send_receive keys and values", "cp", passes.backward * (ranks - 1), 2 * pair);
  };
  const auto exchange = [&] {  // queries and the result, keys and values
    traffic.add("all_to_all attention", "cp", 4 * (passes.forward + passes.backward),
                (queries + pair) / 4);
  };
  const auto& levels = traffic.config().parallel.hierarchical_context_parallel_sizes;
  switch (traffic.config().parallel.cp_comm_type) {
    case CpCommType::p2p: return ring(cp);
    case CpCommType::all_gather:
      traffic.add("all_gather keys and values", "cp", passes.forward + passes.backward, cp * pair);
      return traffic.add("reduce_scatter keys and values", "cp", passes.backward, cp * pair);
    case CpCommType::a2a: return exchange();
    case CpCommType::a2a_p2p:
      exchange();
      return ring(levels && !levels->empty() ? cp / std::max<std::int64_t>(1, levels->front())
                                             : cp);
  }
}

/// Tokens to their experts and back, and the same for the gradients.
void add_experts(Traffic& traffic, const Passes& passes) {
  const Plan& plan = traffic.plan();
  const ModelShape& model = plan.model;
  if (model.experts == 1) return;
  const std::int64_t slots = model.experts * moe_capacity(model, traffic.stream_rows());
  const std::int64_t bytes = slots * model.hidden * traffic.element();
  const std::int64_t count = 2 * (passes.forward + passes.backward);
  if (plan.mesh.ep > 1) {
    // Without an all-to-all every rank gathers all slots and takes its experts' share.
    const bool direct = traffic.config().parallel.enable_alltoall;
    traffic.add(direct ? "all_to_all experts" : "all_gather experts", "expert:ep", count,
                direct ? bytes : bytes * plan.mesh.ep);
  }
  if (plan.mesh.etp == 1) return;
  traffic.add("all_gather expert slots", "expert:tp", count / 2, bytes * plan.mesh.etp);
  traffic.add("reduce_scatter expert slots", "expert:tp", count / 2, bytes * plan.mesh.etp);
}

void add_messages(Traffic& traffic) {
  const Plan& plan = traffic.plan();
  if (plan.mesh.pp == 1) return;
  const auto& given = traffic.config().parallel.pipeline.dtype;
  const std::int64_t size = !given ? traffic.element() : *given == ComputeType::fp32 ? fp32 : 2;
  const std::int64_t bytes = traffic.stream_rows() * plan.model.hidden * size;
  for (const UnitRange& range : traffic.stage().units) {
    if (range.end < plan.units()) {
      traffic.add("send activations", "pp", plan.microbatches, bytes);
      traffic.add("receive gradients", "pp", plan.microbatches, bytes);
    }
    if (range.begin > 0) {
      traffic.add("receive activations", "pp", plan.microbatches, bytes);
      traffic.add("send gradients", "pp", plan.microbatches, bytes);
    }
  }
}

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
void add_fused_gathers(Traffic& traffic, bool expert, const std::string& group) {
  std::vector<std::int64_t> elements;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < traffic.stage().shards.size(); ++i) {
    const ParamSpec& row = traffic.stage().parameters[i];
    if (traffic.stage().shards[i].kind != ShardKind::rows || row.expert != expert) continue;
    elements.push_back(row.shape.numel());
    total += row.shape.numel();
  }
  if (elements.empty()) return;
  const CommFusionConfig& fusion = traffic.config().parallel.comm_fusion;
  const std::vector<int> blocks = fusion_blocks(elements, fusion_threshold(fusion.allgather));
  const std::int64_t count =
      fusion.openstate ? blocks.back() + 1 : static_cast<std::int64_t>(elements.size());
  traffic.add_total("all_gather parameters", group, count, total * fp32);
}

/// Rows, parameter by parameter: the sums of their gradients, and their masters over the ranks that
/// share a copy of the state.
void add_rows(Traffic& traffic, bool expert, std::int64_t sums) {
  const StagePlan& stage = traffic.stage();
  const OwnershipTable table = make_ownership(traffic.plan(), traffic.rank());
  for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
    const Ownership& own = table.parameters[i];
    if (own.route < 0 || stage.parameters[i].expert != expert) continue;
    const ShardRoute& route = table.routes[static_cast<std::size_t>(own.route)];
    const auto bytes = [&](const Slice& slice) {
      return (slice.end - slice.begin) * traffic.gradient();
    };
    if (route.scatter.size() > 1) {
      traffic.add("reduce_scatter gradients", route.scatter_kind, sums, bytes(own.scattered));
    }
    if (route.mirror.size() > 1) {
      traffic.add("all_reduce gradient slices", route.mirror_kind, sums, bytes(own.summed));
    }
    traffic.add("all_gather parameters", route.gather_kind, 1,
                stage.parameters[i].shape.numel() * fp32);
  }
}

/// What the ranks with the same parameters exchange, of dense ones or of experts.
void add_replicas(Traffic& traffic, bool expert) {
  const Plan& plan = traffic.plan();
  const StagePlan& stage = traffic.stage();
  const std::int64_t ranks = expert ? plan.mesh.edp : plan.mesh.dp * plan.mesh.cp;
  const std::string group = expert ? "expert:dp" : plan.mesh.cp == 1 ? "dp" : "dp-cp";
  const BucketRule rule = plan.gradient.buckets;
  const bool each = traffic.config().hooks.no_sync == NoSync::never;
  if (rule == BucketRule::size) {
    add_rows(traffic, expert, each || plan.accumulates_slices ? plan.microbatches : 1);
  }
  if (ranks == 1) return;
  if (rule == BucketRule::comm_fusion) add_fused_gathers(traffic, expert, group);
  for (const Bucket& bucket : stage.flat.buckets) {
    if (bucket.expert != expert) continue;
    const BucketUse use = use_of(bucket, stage);
    if (rule == BucketRule::size && use.rows > 0) continue;  // has no other parameters
    const std::int64_t sums = each ? plan.microbatches : 1;
    const std::int64_t scatters =
        use.rows > 0 && plan.accumulates_slices ? plan.microbatches : sums;
    traffic.add("all_reduce gradients", group, sums, use.summed * traffic.gradient());
    traffic.add("reduce_scatter gradients", group, scatters, use.scattered * traffic.gradient());
    traffic.add("all_reduce gradient slices", group, 1, use.mirrored * traffic.gradient());
    const bool by_bucket = use.rows == 0 || rule == BucketRule::layers;
    if (by_bucket) traffic.add("all_gather parameters", group, 1, use.scattered * fp32);
    traffic.add_total("broadcast parameters", group, use.dealt_count, use.dealt * fp32);
  }
}

/// Gradients that ranks with different shards hold parts of.
void add_shared_gradients(Traffic& traffic) {
  std::int64_t over_tp = 0;
  std::int64_t copies = 0;
  for (const ParamSpec& row : traffic.stage().parameters) {
    const std::int64_t numel = row.shape.numel();
    if (row.gradient_sum[static_cast<std::size_t>(Axis::tp)]) over_tp += numel;
    if (row.tp_copies > 1) copies += numel;
    if (row.two_homes) {
      traffic.add("all_reduce tied embedding", "embedding", 1, numel * traffic.gradient());
    }
  }
  traffic.add("all_reduce replicated gradients", "tp", 1, over_tp * traffic.gradient());
  traffic.add("all_reduce shared keys and values", "tp", 1, copies * traffic.gradient());
}

/// The global norm of the gradient, and the loss with its weight.
void add_scalars(Traffic& traffic, bool sharded) {
  const Plan& plan = traffic.plan();
  const Mesh& mesh = plan.mesh;
  constexpr std::int64_t one = 8;
  if (traffic.config().optimizer.clip_grad_norm > 0) {
    if (sharded) traffic.add("all_reduce gradient norm", "tp-dp-cp", 1, one);
    if (sharded && mesh.pp > 1) traffic.add("all_reduce gradient norm", "pp", 1, one);
    if (!sharded && mesh.tp * mesh.pp > 1) traffic.add("all_reduce gradient norm", "tp-pp", 1, one);
    const bool experts = plan.model.experts > 1 && mesh.etp * mesh.ep * mesh.pp > 1;
    if (!sharded && experts) {
      traffic.add("all_reduce expert gradient norm", "expert:tp-ep-pp", 1, one);
    }
  }
  if (mesh.dp * mesh.cp > 1 && traffic.holds(plan.units() - 1)) {
    traffic.add("all_reduce loss", mesh.cp == 1 ? "dp" : "dp-cp", 1, 2 * one);
  }
}

}  // namespace

std::vector<CollectiveUse> estimate_communication(const Plan& plan, int stage,
                                                  const Config& config) {
  const StagePlan& rows = plan.stages[static_cast<std::size_t>(stage)];
  Traffic traffic(plan, rows, config);
  const Passes passes = passes_of(traffic, stage);
  if (plan.mesh.tp > 1) {
    add_region(traffic, passes, "attention");
    if (plan.model.experts == 1) add_region(traffic, passes, "mlp");
    add_vocabulary(traffic);
  }
  add_context(traffic, passes);
  add_experts(traffic, passes);
  add_messages(traffic);
  // Dealt parameters do not count: every rank has their gradients whole.
  const bool sharded =
      std::any_of(rows.shards.begin(), rows.shards.end(), [](const OptimizerShard& shard) {
        return shard.kind == ShardKind::rows || shard.kind == ShardKind::bucket;
      });
  add_replicas(traffic, false);
  add_replicas(traffic, true);
  add_shared_gradients(traffic);
  add_scalars(traffic, sharded);
  return traffic.take();
}

}  // namespace trainctl
