// Optimizer state sharded among the replicas.
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
        stages > 1 ? "the world size (" + std::to_string(facts.site.world_size) + ") / " +
                         named("pipeline_stages", stages) + " = " + std::to_string(most)
                   : named("the world size", most);
    check.error("weight-shard-size", size_path,
                named("weight_shard_size", size) +
                    (size < 1 ? " must be -1 or at least 1" : " must be at most " + limit),
                "set weight_shard_size to -1 (all replicas), or to " +
                    divisors_near(facts.replicas(), size < 1 ? facts.replicas() : size));
  } else if (size == 1) {
    check.no_effect(size_path, true, "with groups of one rank nothing is sharded");
  } else if (facts.replicas() % size != 0) {
    check.warning("weight-shard-divides", size_path,
                  "has no effect: " +
                      indivisible(named("the number of replicas", facts.replicas()),
                                  named("weight_shard_size", size)) +
                      ", so each parameter is sharded among all its replicas",
                  "set weight_shard_size to " + divisors_near(facts.replicas(), size));
  }
}

/// Whole parameters that come from their owner are in no other rank's slab: a buffer beside it.
void remark_memory(const Facts& facts, Check& check) {
  const RecomputeConfig& recompute = facts.config.recompute;
  const bool again = recompute.enable && recompute.parallel_optimizer_comm_recompute;
  const bool frees = resolve_optimizer_level(facts.parallel()) == OptimizerLevel::level3;
  if (resolve_compute(facts.config.precision) != ComputeType::fp32 || (!frees && !again)) return;
  const std::string path = frees ? level_path : "recompute.parallel_optimizer_comm_recompute";
  if (!check.clean({path})) return;
  check.warning("dealt-memory", path,
                "in fp32 with parallel_mode data_parallel this takes more memory, not less: each "
                "rank owns whole parameters and gathers the others beside them",
                frees ? "set optimizer_level to level1, or parallel_mode to hybrid_parallel"
                      : "set parallel_optimizer_comm_recompute to false, or parallel_mode to "
                        "hybrid_parallel");
}

void check_level(const Facts& facts, Check& check) {
  const ParallelOptimizerConfig& optimizer = facts.parallel().parallel_optimizer;
  const OptimizerLevel level = resolve_optimizer_level(facts.parallel());
  const bool shard = optimizer.gradient_accumulation_shard;
  const bool divides = level != OptimizerLevel::level1;
  const std::string word(word_of(level));
  if (check.given(gradients_path) && optimizer.optimizer_level && shard != divides) {
    check.error("optimizer-level", level_path,
                "optimizer_level (" + word + ") " + (divides ? "divides" : "does not divide") +
                    " gradients, but gradient_accumulation_shard is " + (shard ? "true" : "false"),
                "leave gradient_accumulation_shard out, or set it to " +
                    std::string(divides ? "true" : "false"));
  }
  const bool dealt = facts.mode == ParallelMode::data_parallel &&
                     resolve_bucket_rule(facts.parallel()) != BucketRule::megatron;
  if (dealt) {
    check.no_effect(level_path, level == OptimizerLevel::level2,
                    "parallel_mode data_parallel sums whole gradients on every rank");
    const char* dealt_whole = "parallel_mode data_parallel deals whole parameters to the ranks";
    check.no_effect("parallel.parallel_optimizer.threshold",
                    optimizer.threshold != ParallelOptimizerConfig{}.threshold, dealt_whole);
    check.no_effect(size_path, optimizer.weight_shard_size != -1, dealt_whole);
    check.no_effect(gradients_path, !shard && !optimizer.optimizer_level, dealt_whole);
    remark_memory(facts, check);
  }
  const RecomputeConfig& recompute = facts.config.recompute;
  const bool frees = level == OptimizerLevel::level3 ||
                     (recompute.enable && recompute.parallel_optimizer_comm_recompute);
  check.no_effect("parallel.parallel_optimizer.prefetch", !frees && optimizer.prefetch != 1,
                  "weights stay whole on every rank");
}

/// Gradients in a narrower type are summed over ranks before they are added up.
void check_gradient_sums(const Facts& facts, Check& check) {
  const char* path = "optimizer.main_grads_dtype";
  const Config& config = facts.config;
  if (type_of_gradients(config.optimizer) == DType::f32 || facts.replicas() == 1) return;
  if (resolve_optimizer_level(config.parallel) != OptimizerLevel::level1) return;
  if (config.hooks.no_sync == NoSync::never || !check.clean({path, "train"})) return;
  const std::int64_t microbatches = resolve_batch(config.train, facts.mesh).microbatches;
  if (microbatches == 1) return;
  check.warning("gradient-sums", path,
                "main_grads_dtype (bf16) adds gradients up after their sums over ranks: " +
                    number(facts.replicas()) + " replicas send them for each micro-batch, " +
                    number(microbatches) + " times in a step",
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
    check.no_effect("parallel.parallel_optimizer.enable", true,
                    "with one replica there is nothing to shard");
    return;
  }
  check_shard_size(facts, check);
  check_level(facts, check);
}

}  // namespace trainctl
