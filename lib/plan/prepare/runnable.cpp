#include "plan/prepare/runnable.h"

#include <algorithm>

namespace trainctl {

namespace {

void refuse(const std::string& key, const std::string& what, const std::string& help,
            const SourceMap& sources, Diagnostics& diagnostics) {
  const std::string path = "parallel." + key;
  diagnostics.add(
      {Severity::error, "not-built", path, "not built yet: " + what, help, sources.find(path)});
}

/// Whether any parameter of the plan is cut by rows.
bool any_rows(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& stage) {
    return std::any_of(stage.shards.begin(), stage.shards.end(),
                       [](const OptimizerShard& shard) { return shard.kind == ShardKind::rows; });
  });
}

void check_parallel_optimizer(const Plan& plan, const SourceMap& sources,
                              Diagnostics& diagnostics) {
  if (plan.accumulates_slices && any_rows(plan)) {
    refuse("parallel_optimizer.gradient_accumulation_shard", "gradients that accumulate in slices",
           "today: gradient_accumulation_shard: false", sources, diagnostics);
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
