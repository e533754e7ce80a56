// What the parallel mode ignores (as in the documentation of MindSpore's
// set_auto_parallel_context), the strategy search, and the split of the input.
#include <algorithm>

#include "config/schema/words.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

std::string mode_of(const Facts& facts) {
  return "parallel_mode " + std::string(word_of(facts.mode));
}

/// The modes stand_alone and data_parallel use no size except data_parallel.
void remark_sizes(const Facts& facts, Check& check) {
  if (!facts.unsplit) return;
  const ParallelConfig& parallel = facts.parallel();
  const std::string reason =
      mode_of(facts) + " does not split the model; hybrid_parallel applies the given sizes";
  const auto idle = [&](const char* key, bool differs) {
    check.no_effect("parallel." + std::string(key), differs, reason);
  };
  idle("tensor_parallel", parallel.tensor_parallel != 1);
  idle("context_parallel", parallel.context_parallel != 1);
  idle("expert_parallel", parallel.expert_parallel != 1);
  idle("expert_tensor_parallel", parallel.expert_tensor_parallel.value_or(1) != 1);
  idle("pipeline_stages", parallel.pipeline_stages != 1);
  idle("virtual_pipeline_stages", parallel.virtual_pipeline_stages != 1);
  idle("pipeline.scheduler", parallel.pipeline.scheduler != PipelineScheduler::one_f_one_b);
  idle("pipeline.interleave", parallel.pipeline.interleave == true);
  idle("cp_comm_type", parallel.cp_comm_type != CpCommTypes(CpCommType::p2p));
  idle("hierarchical_context_parallel_sizes",
       parallel.hierarchical_context_parallel_sizes.has_value());
  idle("force_fp32_communication", parallel.force_fp32_communication);
  idle("tp_comm_overlap", parallel.tp_comm_overlap.enable);
  idle("delay_wgrad_compute", parallel.delay_wgrad_compute);
}

/// Keys that only semi_auto_parallel and auto_parallel use.
void remark_compiled(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  if (facts.mode != ParallelMode::auto_parallel) {
    check.no_effect("parallel.search_mode",
                    parallel.search_mode != SearchMode::recursive_programming,
                    "only parallel_mode auto_parallel searches");
  }
  if (!facts.mesh_is_clean(check)) return;
  check.no_effect("parallel.enable_alltoall",
                  parallel.enable_alltoall && !facts.operators.any_attention(SplitBy::tokens),
                  "no tensor moves from tokens to heads, as in attention that "
                  "parallel.operator_splits splits by tokens; rows of experts and heads of "
                  "context_parallel always go by all-to-all");
}

/// Keys of data and gradients that have no effect in this configuration.
void remark_data(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  if (!facts.splits) {
    const std::string reason =
        mode_of(facts) +
        " ignores it; hybrid_parallel, semi_auto_parallel and auto_parallel use it";
    check.no_effect("parallel.gradient_fp32_sync", !parallel.gradient_fp32_sync, reason);
    check.no_effect("parallel.loss_repeated_mean", !parallel.loss_repeated_mean, reason);
    check.no_effect("parallel.dataset_strategy", !(parallel.dataset_strategy == DatasetSplit{}),
                    reason);
  }
  if (!facts.mesh_is_clean(check)) return;
  const bool narrow = resolve_compute(facts.config.precision) != ComputeType::fp32;
  const char* one_replica = "data_parallel is 1";
  check.no_effect("parallel.dataset_strategy",
                  facts.mesh.dp == 1 && parallel.dataset_strategy.word == "full_batch",
                  one_replica);
  if (facts.replicas() == 1) {
    check.no_effect("parallel.gradients_mean", parallel.gradients_mean == false, one_replica);
    check.no_effect("parallel.parameter_broadcast", parallel.parameter_broadcast, one_replica);
  }
  check.no_effect("parallel.loss_repeated_mean", facts.mesh.tp == 1 && !parallel.loss_repeated_mean,
                  "tensor_parallel is 1, so no two ranks compute the same loss");
  if (!narrow) {
    const char* wide = "precision.compute is fp32, so all sums are in fp32";
    check.no_effect("parallel.gradient_fp32_sync", !parallel.gradient_fp32_sync, wide);
    check.no_effect("parallel.force_fp32_communication", parallel.force_fp32_communication, wide);
    return;
  }
  const char* forced = "force_fp32_communication is true";
  check.no_effect("parallel.gradient_fp32_sync",
                  !parallel.gradient_fp32_sync && parallel.force_fp32_communication, forced);
  check.no_effect(
      "parallel.force_fp32_communication",
      parallel.force_fp32_communication && facts.mesh.tp == 1 && parallel.gradient_fp32_sync,
      "tensor_parallel is 1 and gradients are summed in fp32");
}

void check_search(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  if (facts.mode == ParallelMode::auto_parallel &&
      parallel.search_mode == SearchMode::dynamic_programming && parallel.pipeline_stages > 1 &&
      check.clean({"parallel.search_mode", "parallel.pipeline_stages"})) {
    check.error("search-pipeline", "parallel.search_mode",
                "dynamic_programming needs " + named("pipeline_stages", parallel.pipeline_stages) +
                    " to be 1",
                "set search_mode to recursive_programming or sharding_propagation, or "
                "pipeline_stages to 1");
  }
}

std::string shown(const IntList& split) {
  std::string text;
  for (const std::int64_t slices : split)
    text += (text.empty() ? "" : ", ") + std::to_string(slices);
  return "[" + text + "]";
}

/// For each input: the batch in data_parallel parts, at most one dimension split.
void check_inputs(const Facts& facts, Check& check) {
  const char* path = "parallel.dataset_strategy";
  if (!facts.splits || !facts.mesh_is_clean(check) || !check.clean({path})) return;
  const std::int64_t data = facts.mesh.dp;
  const std::int64_t ranks = facts.site.world_size / facts.mesh.pp;
  std::size_t number = 0;
  for (const IntList& split : facts.parallel().dataset_strategy.splits) {
    const std::string input = "input " + std::to_string(number++) + " " + shown(split) + ": ";
    const std::string help = "write [" + std::to_string(data) +
                             ", 1], or set dataset_strategy to data_parallel or full_batch";
    const auto dims =
        std::count_if(split.begin(), split.end(), [](std::int64_t slices) { return slices != 1; });
    std::int64_t product = 1;
    for (const std::int64_t slices : split) {
      product = product_of({product, std::max<std::int64_t>(1, slices)});
    }
    if (split.empty() || dims > 1) {
      check.error("dataset-strategy", path,
                  input + "at most one dimension may be split, found " + std::to_string(dims),
                  help);
    } else if (split.front() != data) {
      check.error("dataset-strategy", path,
                  input + "the batch must be split into " + named("data_parallel", data) +
                      " parts, found " + std::to_string(split.front()),
                  help);
    } else if (ranks % product != 0) {
      check.error("dataset-strategy", path,
                  input + "the " + counted(ranks, "rank") +
                      " of a stage must be divisible by the " + std::to_string(product) + " parts",
                  help);
    } else if (product != data) {
      check.error("dataset-strategy", path, input + "only the batch can be split", help);
    } else {
      continue;
    }
    return;
  }
}

/// Switches that need something else, which is not there.
void remark_lone_switches(const Facts& facts, Check& check) {
  const Config& config = facts.config;
  check.no_effect("precision.enable_autocast",
                  config.precision.enable_autocast && !config.precision.autocast_dtype,
                  "autocast_dtype is not given, so that products are in precision.compute");
  const bool sums_once = facts.batch.microbatches == 1 && facts.batch.ramp.size() <= 1;
  const bool counted = facts.mesh_is_clean(check) && check.clean({"train"});
  check.no_effect("hooks.no_sync", counted && sums_once && config.hooks.no_sync == NoSync::never,
                  "a step has one micro-batch");
  check.no_effect("hooks.grad_sync",
                  counted && facts.site.world_size == 1 &&
                      config.hooks.grad_sync == GradSyncStart::after_backward,
                  "one rank sums no gradients");
  const StrategyFileConfig& files = facts.parallel().strategy_ckpt_config;
  check.no_effect("parallel.strategy_ckpt_config.only_trainable_params",
                  !files.only_trainable_params && files.save_file.empty(),
                  "save_file is not given");
  check.no_effect("log.trace_steps", config.log.trace.empty() && config.log.trace_steps != 1,
                  "log.trace is not given");
  check.no_effect("checkpoint.keep_every",
                  config.checkpoint.keep_every > 0 && config.checkpoint.keep == 0,
                  "checkpoint.keep is 0, so that all are kept");
}

}  // namespace

void check_modes(const Facts& facts, Check& check) {
  remark_lone_switches(facts, check);
  check_search(facts, check);
  check_inputs(facts, check);
  remark_sizes(facts, check);
  remark_compiled(facts, check);
  remark_data(facts, check);
  if (facts.mode == ParallelMode::stand_alone) {
    check.no_effect("parallel.gradients_mean", facts.parallel().gradients_mean.has_value(),
                    "parallel_mode is stand_alone, with one rank");
  }
  if (facts.mesh_is_clean(check) && facts.mesh.tp == 1) {
    check.no_effect("parallel.vocab_emb_dp", facts.parallel().vocab_emb_dp == false,
                    "tensor_parallel is 1, so every rank holds the whole embedding");
  }
}

}  // namespace trainctl
