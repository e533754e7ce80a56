#include "engine/runnable.h"

#include <algorithm>

namespace trainctl {

namespace {

void refuse(const std::string& key, const std::string& what, const std::string& help,
            const SourceMap& sources, Diagnostics& diagnostics) {
  const std::string path = "parallel." + key;
  diagnostics.add(
      {Severity::error, "not-built", path, "not built yet: " + what, help, sources.find(path)});
}

/// Whether any parameter of the plan is cut by rows in a way that `is` says.
template <class Condition>
bool any_rows(const Plan& plan, const Condition& is) {
  for (const StagePlan& stage : plan.stages) {
    for (std::size_t i = 0; i < stage.shards.size(); ++i) {
      if (stage.shards[i].kind == ShardKind::rows && is(stage.parameters[i], stage.shards[i])) {
        return true;
      }
    }
  }
  return false;
}

void check_parallel_optimizer(const Plan& plan, const SourceMap& sources,
                              Diagnostics& diagnostics) {
  const auto mirrored = [](const ParamSpec&, const OptimizerShard& shard) {
    return shard.mirrors > 1;
  };
  const auto any = [](const ParamSpec&, const OptimizerShard&) { return true; };
  const auto over_tensor_ranks = [&](const ParamSpec& row, const OptimizerShard&) {
    return replica_place(row, plan.mesh, 0).inners > 1;
  };
  if (any_rows(plan, mirrored)) {
    refuse("parallel_optimizer.weight_shard_size", "optimizer state shared by some of the replicas",
           "today: weight_shard_size: -1", sources, diagnostics);
  }
  if (plan.accumulates_slices && any_rows(plan, any)) {
    refuse("parallel_optimizer.gradient_accumulation_shard", "gradients that accumulate in slices",
           "today: gradient_accumulation_shard: false", sources, diagnostics);
  }
  const Mesh& mesh = plan.mesh;
  const bool reordered = mesh.dp > 1 && mesh.stride(Axis::tp) > mesh.stride(Axis::dp);
  if (reordered && any_rows(plan, over_tensor_ranks)) {
    refuse("parallel_optimizer.enable", "with this order of ranks", "the order could begin with tp",
           sources, diagnostics);
  }
}

}  // namespace

void check_runnable(const Plan& plan, const SourceMap& sources, Diagnostics& diagnostics) {
  const std::string layout = "pipeline.layout";
  check_parallel_optimizer(plan, sources, diagnostics);
  if (plan.map.chunks > 1) {
    refuse(layout, "layouts with " + std::to_string(plan.map.chunks) + " chunks for each stage",
           "the layout could have " + std::to_string(plan.map.stages) + " parts", sources,
           diagnostics);
    return;
  }
  const bool empty = std::any_of(plan.map.all.begin(), plan.map.all.end(), [](const auto& chunk) {
    return chunk.first_unit == chunk.end_unit;
  });
  if (empty) {
    refuse(layout, "a stage that holds nothing", "each part of the layout could have a t", sources,
           diagnostics);
  }
}

}  // namespace trainctl
