// Gradient buckets and fused collectives.
#include "config/schema/words.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

std::string shown(const FusionValue& value) {
  if (value.size) return std::to_string(*value.size);
  return value.index ? "a list" : "null";
}

/// What `config` holds in each mode: nothing for auto, a number of MB for size, a list for index.
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
  if (*fusion.mode == FusionMode::index && !takes_index) {
    check.error("fusion-mode", path + ".mode",
                "mode index counts gradients, so only allreduce supports it",
                "set mode to auto or size");
    return;
  }
  const bool fits = *fusion.mode == FusionMode::automatic ? !value.size && !value.index
                    : *fusion.mode == FusionMode::size    ? value.size.has_value()
                                                          : value.index.has_value();
  if (!fits) {
    const char* expected = *fusion.mode == FusionMode::automatic ? "no value"
                           : *fusion.mode == FusionMode::size    ? "a number of MB"
                                                                 : "a list of indices";
    const char* help = *fusion.mode == FusionMode::automatic ? "leave config out"
                       : *fusion.mode == FusionMode::size    ? "for example config: 64"
                                                             : "for example config: [20, 35]";
    check.error("fusion-config", path + ".config",
                "with mode " + std::string(word_of(*fusion.mode)) + ", config must be " + expected +
                    ", found " + shown(value),
                help);
    return;
  }
  if (value.size && *value.size < 1) {
    check.error("out-of-range", path + ".config",
                "must be at least 1, found " + std::to_string(*value.size));
  }
  if (!value.index) return;
  const IntList& index = *value.index;
  bool rising = !index.empty() && index.front() >= 0;
  for (std::size_t i = 1; i < index.size(); ++i) rising = rising && index[i] > index[i - 1];
  if (!rising) {
    check.error("out-of-range", path + ".config",
                "expected at least one index, each from 0 and in ascending order",
                "for example config: [20, 35]");
  }
}

void remark_kinds(const Facts& facts, Check& check) {
  const CommFusionConfig& fusion = facts.parallel().comm_fusion;
  const bool sharded = facts.parallel().parallel_optimizer.enable;
  const auto idle = [&](const char* kind, const FusionConfig& one, const std::string& reason) {
    check.no_effect("parallel.comm_fusion." + std::string(kind),
                    one.mode.has_value() || one.config.size || one.config.index, reason);
  };
  if (!fusion.openstate) {
    const std::string reason = "comm_fusion.openstate is false";
    idle("allreduce", fusion.allreduce, reason);
    idle("allgather", fusion.allgather, reason);
    idle("reducescatter", fusion.reducescatter, reason);
  } else if (!sharded) {
    const std::string reason = "only parallel_optimizer uses this collective";
    idle("allgather", fusion.allgather, reason);
    idle("reducescatter", fusion.reducescatter, reason);
  } else if (facts.mode == ParallelMode::data_parallel &&
             facts.parallel().bucket_rule != BucketRule::megatron) {
    const std::string reason = "data_parallel updates whole parameters, which are not fused";
    idle("allgather", fusion.allgather, reason);
    idle("reducescatter", fusion.reducescatter, reason);
  }
  if (fusion.openstate && sharded && fusion.allreduce.mode == FusionMode::index) {
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
  const std::string reason = "bucket_rule is " + std::string(word_of(rule));
  if (rule != BucketRule::layers) {
    check.no_effect("parallel.gradient_aggregation_group",
                    parallel.gradient_aggregation_group.has_value(), reason);
  }
  if (rule != BucketRule::size && rule != BucketRule::megatron) {
    check.no_effect("parallel.bucket_size", parallel.bucket_size.has_value(), reason);
  }
  if (rule != BucketRule::comm_fusion) {
    check.no_effect("parallel.comm_fusion.allreduce",
                    parallel.comm_fusion.allreduce.mode.has_value(), reason);
    check.no_effect("parallel.comm_fusion.reducescatter",
                    parallel.comm_fusion.reducescatter.mode.has_value(), reason);
    check.no_effect("parallel.comm_fusion.allgather",
                    parallel.comm_fusion.allgather.mode.has_value(), reason);
    check.no_effect("parallel.comm_fusion.openstate", !parallel.comm_fusion.openstate, reason);
  }
}

void remark_one_replica(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  const std::string reason = "with one replica, gradients are not communicated";
  check.no_effect("parallel.bucket_rule", parallel.bucket_rule.has_value(), reason);
  check.no_effect("parallel.bucket_size", parallel.bucket_size.has_value(), reason);
  check.no_effect("parallel.comm_fusion.allreduce", parallel.comm_fusion.allreduce.mode.has_value(),
                  reason);
  check.no_effect("parallel.comm_fusion.allgather", parallel.comm_fusion.allgather.mode.has_value(),
                  reason);
  check.no_effect("parallel.comm_fusion.reducescatter",
                  parallel.comm_fusion.reducescatter.mode.has_value(), reason);
  check.no_effect("parallel.comm_fusion.openstate", !parallel.comm_fusion.openstate, reason);
  check.no_effect("parallel.gradient_aggregation_group",
                  parallel.gradient_aggregation_group.has_value(), reason);
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

}  // namespace trainctl
