// Optimizer state sharded over the replicas.
#include "plan/rules/check.h"

namespace trainctl {

namespace {

const char* size_path = "parallel.parallel_optimizer.weight_shard_size";

std::string text_of(std::int64_t value) { return std::to_string(value); }

void check_shard_size(const Facts& facts, Check& check) {
  const std::int64_t size = facts.parallel().parallel_optimizer.weight_shard_size;
  if (size == -1 || !check.clean({size_path})) return;
  const std::int64_t stages = facts.mesh.pp;
  const std::int64_t most = facts.site.world_size / stages;
  if (size < 1 || size > most) {
    const std::string devices =
        counted(facts.site.world_size, "rank") +
        (stages > 1 ? " / pipeline " + text_of(stages) + " = " + text_of(most) : "");
    check.error("weight-shard-size", size_path,
                size < 1 ? "weight_shard_size " + text_of(size) + " is neither -1 nor at least 1"
                         : "weight_shard_size " + text_of(size) + " > " + devices,
                "weight_shard_size could be -1 (all replicas), or " +
                    divisors_near(facts.replicas(), size < 1 ? facts.replicas() : size));
  } else if (size == 1) {
    check.no_effect(size_path, true, "a group of 1 rank shares nothing");
  } else if (facts.replicas() % size != 0) {
    check.warning("weight-shard-divides", size_path,
                  "not applied: " + counted(facts.replicas(), "replica") + " / weight_shard_size " +
                      text_of(size) +
                      " is not whole, so each parameter is shared by all its replicas",
                  "weight_shard_size could be " + divisors_near(facts.replicas(), size));
  }
}

}  // namespace

void check_optimizer_shard(const Facts& facts, Check& check) {
  const ParallelOptimizerConfig& optimizer = facts.parallel().parallel_optimizer;
  constexpr std::int64_t most = std::int64_t{1} << 40;
  check.range("parallel.parallel_optimizer.threshold", optimizer.threshold, 0, most);
  if (!optimizer.enable || !facts.mesh_is_clean(check)) return;
  if (facts.replicas() == 1 && facts.mesh.edp == 1) {
    check.no_effect("parallel.parallel_optimizer.enable", true,
                    "there is one replica, so nothing to share the state with");
    return;
  }
  check_shard_size(facts, check);
  if (facts.mesh.pp == 1 && facts.batch.microbatches == 1) {
    check.no_effect("parallel.parallel_optimizer.gradient_accumulation_shard",
                    !optimizer.gradient_accumulation_shard,
                    "there is one micro-batch, so gradients are not accumulated");
  }
}

}  // namespace trainctl
