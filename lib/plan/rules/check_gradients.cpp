// Gradients and optimizer state: state sharded among the replicas, fused collectives, and work that
// overlaps other work.

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "config/schema/words.h"
#include "plan/rules/check.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

const char* level_path = "parallel.parallel_optimizer.optimizer_level";
const char* gradients_path = "parallel.parallel_optimizer.gradient_accumulation_shard";
const char* size_path = "parallel.parallel_optimizer.weight_shard_size";

void check_shard_size(const Facts& facts, Check& check) {
  const std::int64_t size = facts.parallel().parallel_optimizer.weight_shard_size;
  if (size == -1 || !check.clean({size_path})) return;
  const std::int64_t stages = facts.mesh.pp;
  const std::int64_t most = facts.site.world_size / stages;
  if (size < 1 || size > most) {
    const std::string limit =
        stages > 1 ? formatted("the world size ({}) / {} = {}", facts.site.world_size,
                               named("pipeline_stages", stages), most)
                   : named("the world size", most);
    check.error("weight-shard-size", size_path,
                named("weight_shard_size", size) +
                    (size < 1 ? " must be -1 or at least 1" : " must be at most " + limit),
                "set weight_shard_size to -1 (all replicas), or to " +
                    divisors_near(facts.replicas(), size < 1 ? facts.replicas() : size));
  } else if (size == 1) {
    check.no_effect(size_path, true, "with groups of one rank nothing is sharded");
  } else if (facts.replicas() % size != 0) {
    check.warning(
        "weight-shard-divides", size_path,
        formatted("has no effect: {}, so each parameter is sharded among all its replicas",
                  indivisible(named("the number of replicas", facts.replicas()),
                              named("weight_shard_size", size))),
        "set weight_shard_size to " + divisors_near(facts.replicas(), size));
  }
}

/// A parameter that is updated by one owner is in no slab of other ranks, so they need an
/// additional buffer for it.
void remark_memory(const Facts& facts, Check& check) {
  const RecomputeConfig& recompute = facts.config.recompute;
  const bool repeated = recompute.enable && recompute.parallel_optimizer_comm_recompute;
  const bool frees = resolve_optimizer_level(facts.parallel()) == "level3";
  if (resolve_compute(facts.config.precision) != ComputeType::fp32 || (!frees && !repeated)) return;
  const std::string path = frees ? level_path : "recompute.parallel_optimizer_comm_recompute";
  if (!check.clean({path})) return;
  check.warning("dealt-memory", path,
                "in fp32 with parallel_mode data_parallel this takes more memory, not less: each "
                "rank owns whole parameters and gathers the others into extra memory",
                frees ? "set optimizer_level to level1, or parallel_mode to hybrid_parallel"
                      : "set parallel_optimizer_comm_recompute to false, or parallel_mode to "
                        "hybrid_parallel");
}

void check_level(const Facts& facts, Check& check) {
  const ParallelOptimizerConfig& optimizer = facts.parallel().parallel_optimizer;
  const OptimizerLevel level = resolve_optimizer_level(facts.parallel());
  const bool shard = optimizer.gradient_accumulation_shard;
  const bool divides = level != "level1";
  const std::string word(word_of(level));
  if (check.given(gradients_path) && optimizer.optimizer_level && shard != divides) {
    check.error(
        "optimizer-level", level_path,
        formatted("optimizer_level ({}) {} gradients, but gradient_accumulation_shard is {}", word,
                  divides ? "divides" : "does not divide", shard ? "true" : "false"),
        "leave gradient_accumulation_shard out, or set it to " +
            std::string(divides ? "true" : "false"));
  }
  const bool dealt = facts.mode == ParallelMode::data_parallel &&
                     resolve_bucket_rule(facts.parallel()) != BucketRule::megatron;
  if (dealt) {
    check.no_effect(level_path, level == "level2",
                    "parallel_mode data_parallel sums whole gradients on every rank");
    const auto idle = idle_in(check, "parallel.parallel_optimizer.",
                              "parallel_mode data_parallel deals whole parameters to the ranks");
    idle("threshold", optimizer.threshold != ParallelOptimizerConfig{}.threshold);
    idle("weight_shard_size", optimizer.weight_shard_size != -1);
    idle("gradient_accumulation_shard", !shard && !optimizer.optimizer_level);
    remark_memory(facts, check);
  }
  const RecomputeConfig& recompute = facts.config.recompute;
  const bool frees =
      level == "level3" || (recompute.enable && recompute.parallel_optimizer_comm_recompute);
  check.no_effect("parallel.parallel_optimizer.prefetch", !frees && optimizer.prefetch != 1,
                  "weights stay whole on every rank");
}

/// Warns that gradients in a narrower dtype are summed over ranks for each micro-batch.
void check_gradient_sums(const Facts& facts, Check& check) {
  const char* path = "optimizer.main_grads_dtype";
  const Config& config = facts.config;
  if (type_of_gradients(config.optimizer) == DType::f32 || facts.replicas() == 1) return;
  if (resolve_optimizer_level(config.parallel) != "level1") return;
  if (config.hooks.no_sync == "never" || !check.clean({path, "train"})) return;
  const std::int64_t microbatches = resolve_batch(config.train, facts.mesh).microbatches;
  if (microbatches == 1) return;
  check.warning("gradient-sums", path,
                formatted("main_grads_dtype (bf16) adds gradients up after their sums over ranks: "
                          "{} replicas send them for each micro-batch, {} times in a step",
                          number(facts.replicas()), number(microbatches)),
                "enable the parallel optimizer with optimizer_level level2, which divides that "
                "work, or set main_grads_dtype to fp32");
}

}  // namespace

void check_optimizer_shard(const Facts& facts, Check& check) {
  const ParallelOptimizerConfig& optimizer = facts.parallel().parallel_optimizer;
  constexpr std::int64_t most = std::int64_t{1} << 40;
  check.range("parallel.parallel_optimizer.threshold", optimizer.threshold, 0, most);
  if (!facts.mesh_is_clean(check)) return;
  check_gradient_sums(facts, check);
  if (!optimizer.enable) return;
  if (facts.replicas() == 1 && facts.mesh.edp == 1) {
    return check.no_effect("parallel.parallel_optimizer.enable", true,
                           "with one replica there is nothing to shard");
  }
  check_shard_size(facts, check);
  check_level(facts, check);
}

// Gradient buckets and fused collectives.

namespace {

std::string shown(const FusionValue& value) {
  if (value.size) return formatted("{}", *value.size);
  return value.index ? "a list" : "null";
}

/// Checks that `config` suits the mode: absent for auto, a number of MB for size, a list for index.
void check_kind(const std::string& path, const FusionConfig& fusion, bool takes_index,
                Check& check) {
  if (!check.clean({path + ".mode", path + ".config"})) return;
  const FusionValue& value = fusion.config;
  if (!fusion.mode) {
    if (value.size || value.index) {
      check.error("fusion-config", path + ".config",
                  named("config", shown(value)) + " needs a mode",
                  std::string("set mode to ") + (value.size ? "size" : "index"));
    }
    return;
  }
  if (*fusion.mode == "index" && !takes_index) {
    return check.error("fusion-mode", path + ".mode",
                       "mode index counts gradients, so only allreduce supports it",
                       "set mode to auto or size");
  }
  const auto misfit = [&](const char* expected, const char* help) {
    check.error("fusion-config", path + ".config",
                formatted("with mode {}, config must be {}, found {}", word_of(*fusion.mode),
                          expected, shown(value)),
                help);
  };
  const char* some_list = "for example config: [20, 35]";
  if (*fusion.mode == "auto" && (value.size || value.index)) {
    return misfit("no value", "leave config out");
  }
  if (*fusion.mode == "size" && !value.size) {
    return misfit("a number of MB", "for example config: 64");
  }
  if (*fusion.mode == "index" && !value.index) return misfit("a list of indices", some_list);
  if (value.size && *value.size < 1) {
    check.error("out-of-range", path + ".config",
                formatted("must be at least 1, found {}", *value.size));
  }
  if (!value.index) return;
  const IntList& index = *value.index;
  const bool rising = std::ranges::adjacent_find(index, std::greater_equal{}) == index.end();
  if (index.empty() || index.front() < 0 || !rising) {
    check.error("out-of-range", path + ".config",
                "expected at least one index, each from 0 and in ascending order", some_list);
  }
}

void remark_kinds(const Facts& facts, Check& check) {
  const CommFusionConfig& fusion = facts.parallel().comm_fusion;
  const bool sharded = facts.parallel().parallel_optimizer.enable;
  const auto idle = [&](const char* kind, const FusionConfig& one, const char* reason) {
    check.no_effect("parallel.comm_fusion." + std::string(kind),
                    one.mode.has_value() || one.config.size || one.config.index, reason);
  };
  const auto idle_shards = [&](const char* reason) {
    idle("allgather", fusion.allgather, reason);
    idle("reducescatter", fusion.reducescatter, reason);
  };
  if (!fusion.openstate) {
    const char* reason = "comm_fusion.openstate is false";
    idle("allreduce", fusion.allreduce, reason);
    idle_shards(reason);
  } else if (!sharded) {
    idle_shards("only parallel_optimizer uses this collective");
  } else if (facts.mode == ParallelMode::data_parallel &&
             facts.parallel().bucket_rule != BucketRule::megatron) {
    idle_shards("data_parallel updates whole parameters, which are not fused");
  }
  if (fusion.openstate && sharded && fusion.allreduce.mode == FusionMode("index")) {
    idle("allreduce", fusion.allreduce, "parallel_optimizer does not use mode index");
  }
}

void remark_rule(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  if (!check.clean({"parallel.bucket_rule", "parallel.comm_fusion",
                    "parallel.gradient_aggregation_group", "parallel.bucket_size"})) {
    return;
  }
  const BucketRule rule = resolve_bucket_rule(parallel);
  const auto idle = idle_in(check, "parallel.", "bucket_rule is " + std::string(word_of(rule)));
  if (rule != BucketRule::layers) {
    idle("gradient_aggregation_group", parallel.gradient_aggregation_group.has_value());
  }
  if (rule != BucketRule::size && rule != BucketRule::megatron) {
    idle("bucket_size", parallel.bucket_size.has_value());
  }
  if (rule == BucketRule::comm_fusion) return;
  idle("comm_fusion.allreduce", parallel.comm_fusion.allreduce.mode.has_value());
  idle("comm_fusion.reducescatter", parallel.comm_fusion.reducescatter.mode.has_value());
  idle("comm_fusion.allgather", parallel.comm_fusion.allgather.mode.has_value());
  idle("comm_fusion.openstate", !parallel.comm_fusion.openstate);
}

void remark_one_replica(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  const auto idle = idle_in(check, "parallel.", "with one replica, gradients are not communicated");
  idle("bucket_rule", parallel.bucket_rule.has_value());
  idle("bucket_size", parallel.bucket_size.has_value());
  idle("comm_fusion.allreduce", parallel.comm_fusion.allreduce.mode.has_value());
  idle("comm_fusion.allgather", parallel.comm_fusion.allgather.mode.has_value());
  idle("comm_fusion.reducescatter", parallel.comm_fusion.reducescatter.mode.has_value());
  idle("comm_fusion.openstate", !parallel.comm_fusion.openstate);
  idle("gradient_aggregation_group", parallel.gradient_aggregation_group.has_value());
}

}  // namespace

void check_fusion(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  constexpr std::int64_t most = std::int64_t{1} << 40;
  check.range("parallel.bucket_size", parallel.bucket_size.value_or(1), 1, most);
  check.range("parallel.gradient_aggregation_group",
              parallel.gradient_aggregation_group.value_or(1), 1, 1 << 20);
  check_kind("parallel.comm_fusion.allreduce", parallel.comm_fusion.allreduce, true, check);
  check_kind("parallel.comm_fusion.allgather", parallel.comm_fusion.allgather, false, check);
  check_kind("parallel.comm_fusion.reducescatter", parallel.comm_fusion.reducescatter, false,
             check);
  remark_kinds(facts, check);
  if (facts.mesh_is_clean(check) && facts.replicas() == 1 && facts.mesh.edp == 1) {
    remark_one_replica(facts, check);
  } else {
    remark_rule(facts, check);
  }
}

// Overlapping work: communication during computation (tensor-parallel collectives, the exchange
// between experts, delayed weight gradients), and CUDA graphs.

namespace {

void check_tensor_overlap(const Facts& facts, Check& check) {
  const TpCommOverlapConfig& overlap = facts.parallel().tp_comm_overlap;
  const char* path = "parallel.tp_comm_overlap.enable";
  if (!overlap.enable) return;
  if (facts.unsplit) {
    check.no_effect(path, true, "this parallel_mode has no tensor-parallel ranks");
  } else if (!facts.parallel().sequence_parallel && facts.mesh_is_clean(check) &&
             check.clean({path, "parallel.sequence_parallel"})) {
    check.error("tp-overlap-sequence", path,
                "tp_comm_overlap overlaps the gathers and scatters of sequence_parallel, which is "
                "false" +
                    check.place_of("parallel.sequence_parallel"),
                formatted("set sequence_parallel to true{}, or tp_comm_overlap.enable to false",
                          facts.mesh.tp > 1 ? "" : " and tensor_parallel to 2 or more"));
  } else if (facts.mesh_is_clean(check)) {
    const OperatorSplits& splits = facts.operators;
    check.no_effect(
        path,
        !splits.any_attention(SplitBy::features) && !splits.any_feed_forward(SplitBy::features),
        "no operator of a layer is split by features");
  }
}

void check_late_weights(const Facts& facts, Check& check) {
  const char* path = "parallel.delay_wgrad_compute";
  if (!facts.parallel().delay_wgrad_compute || !facts.mesh_is_clean(check)) return;
  const ScheduleTraits& schedule = traits_of(facts.parallel().pipeline.scheduler);
  if (facts.mesh.pp == 1) {
    check.no_effect(path, true,
                    facts.config.moe.overlap_expert_parallel_comm
                        ? "with one stage the exchange of experts overlaps other passes, not "
                          "weight gradients; with stages both overlap"
                        : "a gradient is sent only between pipeline stages");
  } else if (schedule.places_weights) {
    check.no_effect(path, true,
                    formatted("scheduler {} places weight gradients itself", schedule.word));
  }
}

/// Rows of one micro-batch are sent while a pass of another runs, so the schedule must have a
/// forward next to a backward.
void check_expert_overlap(const Facts& facts, Check& check) {
  const char* path = "moe.overlap_expert_parallel_comm";
  if (!facts.config.moe.overlap_expert_parallel_comm || !check.clean({path}) ||
      !facts.mesh_is_clean(check)) {
    return;
  }
  const ScheduleTraits& schedule = traits_of(facts.parallel().pipeline.scheduler);
  if (facts.unsplit) {
    check.no_effect(path, true, "this parallel_mode has no expert-parallel ranks");
  } else if (facts.mesh.ep == 1) {
    check.no_effect(path, true, "expert_parallel is 1, so no tokens are exchanged");
  } else if (facts.mesh.pp > 1 && schedule.value != PipelineScheduler::one_f_one_b) {
    check.error("expert-overlap", path,
                formatted("overlap_expert_parallel_comm runs the forward of a micro-batch during "
                          "the backward of another, which scheduler {}{} does not put side by side",
                          schedule.word, check.place_of("parallel.pipeline.scheduler")),
                "set scheduler to 1f1b, or overlap_expert_parallel_comm to false");
  } else if (facts.batch.microbatches == 1 && facts.batch.ramp.size() <= 1) {
    check.no_effect(path, true, "a step has one micro-batch, and no other runs at the same time");
  }
}

void check_graphs(const Facts& facts, Check& check) {
  const char* path = "parallel.cuda_graphs";
  if (facts.parallel().cuda_graphs != "true" || !facts.mesh_is_clean(check)) return;
  const std::string reason = why_no_graphs(facts.config, facts.site, facts.mesh);
  check.no_effect(path, !reason.empty(), reason);
}

std::int64_t micro_batch_tokens(const Facts& facts) {
  return product_of({facts.batch.micro_batch_size, facts.model.seq_length}) / facts.mesh.cp;
}

/// Each chunk of the exchange needs a token, since an expert receives a token only once.
void check_exchange_chunks(const Facts& facts, Check& check) {
  const char* path = "moe.comp_comm_parallel_degree";
  const std::int64_t degree = facts.config.moe.comp_comm_parallel_degree;
  const bool shares = resolve_exchange(facts.config, facts.mesh).takes_share();
  const std::int64_t tokens = micro_batch_tokens(facts) / (shares ? facts.mesh.tp : 1);
  if (degree <= tokens || tokens < 1 ||
      !check.clean(
          {path, "model.seq_length", "train.micro_batch_size", "train.global_batch_size"})) {
    return;
  }
  check.error("expert-chunks", path,
              formatted("{} must be at most the tokens of a micro-batch that a rank sends ({}): a "
                        "rank cannot cut what it sends to an expert into more chunks",
                        named("comp_comm_parallel_degree", degree), tokens),
              formatted("set comp_comm_parallel_degree to 2, or to at most {}", tokens));
}

/// Tensor-parallel ranks with equal tokens each send a slice, so the tokens must be divisible.
void check_token_slices(const Facts& facts, Check& check) {
  const std::int64_t tokens = micro_batch_tokens(facts);
  const std::int64_t ranks = facts.mesh.tp;
  if (tokens % ranks == 0 ||
      !check.clean({"model.seq_length", "train.micro_batch_size", "train.global_batch_size"})) {
    return;
  }
  const bool cut = !cuts_experts_alike(facts.mesh);
  check.error(
      "expert-slices", cut ? "parallel.expert_tensor_parallel" : "moe.group_wise_a2a",
      indivisible(formatted("the tokens of a micro-batch on a rank ({})", tokens),
                  named("tensor_parallel", ranks)) +
          ": each rank sends an equal slice of them to experts",
      formatted(
          "set micro_batch_size to {}, or {}", multiples_near(ranks, facts.batch.micro_batch_size),
          cut ? formatted("expert_tensor_parallel to {}", ranks) : "group_wise_a2a to false"));
}

/// Checks the exchange of rows with the ranks of their experts.
void check_exchange(const Facts& facts, Check& check) {
  const MoeConfig& moe = facts.config.moe;
  if (!facts.has_experts() || !facts.mesh_is_clean(check) || facts.mesh.cp < 1) return;
  const Mesh& mesh = facts.mesh;
  const ExchangeRule rule = resolve_exchange(facts.config, mesh);
  if (mesh.tp == 1 || mesh.ep == 1) {
    check.no_effect(
        "moe.group_wise_a2a", moe.group_wise_a2a,
        formatted("it needs tensor_parallel and expert_parallel above 1; they are {} and {}",
                  mesh.tp, mesh.ep));
  } else if (!cuts_experts_alike(mesh)) {
    check.no_effect("moe.group_wise_a2a", moe.group_wise_a2a,
                    "experts are not cut over the ranks that cut dense layers, so that each rank "
                    "sends its share of the tokens anyway");
  }
  if (rule.by_slice) check_token_slices(facts, check);
  if (mesh.ep * rule.parts == 1) {
    check.no_effect("moe.comp_comm_parallel", moe.comp_comm_parallel,
                    "expert_parallel is 1, so no tokens are exchanged");
  } else if (moe.comp_comm_parallel_degree == 1) {
    check.no_effect("moe.comp_comm_parallel", moe.comp_comm_parallel,
                    "comp_comm_parallel_degree is 1, and one chunk has no other to overlap with");
  } else if (moe.comp_comm_parallel) {
    check_exchange_chunks(facts, check);
  }
  if (mesh.tp > 1 && mesh.ep > 1 && !facts.parallel().sequence_parallel) {
    check.warning(
        "moe-sequence-parallel", "parallel.expert_parallel",
        formatted(
            "without sequence_parallel, all tensor-parallel ranks route the same tokens ({}, {})",
            named("expert_parallel", mesh.ep), named("tensor_parallel", mesh.tp)),
        "set sequence_parallel to true");
  }
}

}  // namespace

void check_overlap(const Facts& facts, Check& check) {
  check_tensor_overlap(facts, check);
  check_late_weights(facts, check);
  check_expert_overlap(facts, check);
  check_exchange(facts, check);
  check_graphs(facts, check);
}

}  // namespace trainctl
