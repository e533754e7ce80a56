// Parallel degrees and the world size, the order of rank numbers, keys that the parallel mode
// ignores (as in the documentation of MindSpore's set_auto_parallel_context), the strategy search,
// and the split of the input.

#include <algorithm>
#include <limits>
#include <vector>

#include "base/text.h"
#include "config/schema/parallel_config.h"
#include "config/schema/words.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

std::string mode_of(const Facts& facts) {
  return "parallel_mode " + std::string(word_of(facts.mode));
}

/// Warns about sizes that stand_alone and data_parallel ignore: all except data_parallel.
void remark_sizes(const Facts& facts, Check& check) {
  if (!facts.unsplit) return;
  const ParallelConfig& parallel = facts.parallel();
  const auto idle = idle_in(
      check, "parallel.",
      mode_of(facts) + " does not split the model; hybrid_parallel applies the given sizes");
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

/// Warns about keys that only semi_auto_parallel and auto_parallel use.
void remark_compiled(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  if (facts.mode != ParallelMode::auto_parallel) {
    check.no_effect("parallel.search_mode", parallel.search_mode != "recursive_programming",
                    "only parallel_mode auto_parallel searches");
  }
  if (!facts.mesh_is_clean(check)) return;
  check.no_effect("parallel.enable_alltoall",
                  parallel.enable_alltoall && !facts.operators.any_attention(SplitBy::tokens),
                  "no tensor moves from tokens to heads, as in attention that "
                  "parallel.operator_splits splits by tokens; rows of experts and heads of "
                  "context_parallel always go by all-to-all");
}

/// Warns about keys of data and gradients that have no effect in this configuration.
void remark_data(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  if (!facts.splits) {
    const auto idle =
        idle_in(check, "parallel.",
                mode_of(facts) +
                    " ignores it; hybrid_parallel, semi_auto_parallel and auto_parallel use it");
    idle("gradient_fp32_sync", !parallel.gradient_fp32_sync);
    idle("loss_repeated_mean", !parallel.loss_repeated_mean);
    idle("dataset_strategy", !(parallel.dataset_strategy == DatasetSplit{}));
  }
  if (!facts.mesh_is_clean(check)) return;
  const bool narrow = resolve_compute(facts.config.precision) != ComputeType::fp32;
  const auto alone = idle_in(check, "parallel.", "data_parallel is 1");
  alone("dataset_strategy", facts.mesh.dp == 1 && parallel.dataset_strategy.word == "full_batch");
  if (facts.replicas() == 1) {
    alone("gradients_mean", parallel.gradients_mean == false);
    alone("parameter_broadcast", parallel.parameter_broadcast);
  }
  check.no_effect("parallel.loss_repeated_mean", facts.mesh.tp == 1 && !parallel.loss_repeated_mean,
                  "tensor_parallel is 1, so no two ranks compute the same loss");
  if (!narrow) {
    const char* wide = "precision.compute is fp32, so all sums are in fp32";
    check.no_effect("parallel.gradient_fp32_sync", !parallel.gradient_fp32_sync, wide);
    return check.no_effect("parallel.force_fp32_communication", parallel.force_fp32_communication,
                           wide);
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
  if (facts.mode == ParallelMode::auto_parallel && parallel.search_mode == "dynamic_programming" &&
      parallel.pipeline_stages > 1 &&
      check.clean({"parallel.search_mode", "parallel.pipeline_stages"})) {
    check.error("search-pipeline", "parallel.search_mode",
                formatted("dynamic_programming needs {} to be 1",
                          named("pipeline_stages", parallel.pipeline_stages)),
                "set search_mode to recursive_programming or sharding_propagation, or "
                "pipeline_stages to 1");
  }
}

/// Checks that each input splits the batch into data_parallel parts and at most one dimension.
void check_inputs(const Facts& facts, Check& check) {
  const char* path = "parallel.dataset_strategy";
  if (!facts.splits || !facts.mesh_is_clean(check) || !check.clean({path})) return;
  const std::int64_t data = facts.mesh.dp;
  const std::int64_t ranks = facts.site.world_size / facts.mesh.pp;
  std::size_t number = 0;
  for (const IntList& split : facts.parallel().dataset_strategy.splits) {
    const std::string shown =
        joined(split, ", ", [](std::int64_t slices) { return std::to_string(slices); });
    const std::string input = formatted("input {} [{}]: ", number++, shown);
    const std::string help =
        formatted("write [{}, 1], or set dataset_strategy to data_parallel or full_batch", data);
    const auto dims =
        std::count_if(split.begin(), split.end(), [](std::int64_t slices) { return slices != 1; });
    std::int64_t product = 1;
    for (const std::int64_t slices : split) {
      product = product_of({product, std::max<std::int64_t>(1, slices)});
    }
    const std::string mistake =
        split.empty() || dims > 1 ? formatted("at most one dimension may be split, found {}", dims)
        : split.front() != data   ? formatted("the batch must be split into {} parts, found {}",
                                              named("data_parallel", data), split.front())
        : ranks % product != 0    ? formatted("the {} of a stage must be divisible by the {} parts",
                                              counted(ranks, "rank"), product)
        : product != data         ? "only the batch can be split"
                                  : "";
    if (!mistake.empty()) return check.error("dataset-strategy", path, input + mistake, help);
  }
}

/// Warns about switches that have no effect without another option.
void remark_lone_switches(const Facts& facts, Check& check) {
  const Config& config = facts.config;
  check.no_effect("precision.enable_autocast",
                  config.precision.enable_autocast && !config.precision.autocast_dtype,
                  "autocast_dtype is not given, so that products are in precision.compute");
  const bool sums_once = facts.batch.microbatches == 1 && facts.batch.ramp.size() <= 1;
  const bool counted = facts.mesh_is_clean(check) && check.clean({"train"});
  check.no_effect("hooks.no_sync", counted && sums_once && config.hooks.no_sync == "never",
                  "a step has one micro-batch");
  check.no_effect(
      "hooks.grad_sync",
      counted && facts.site.world_size == 1 && config.hooks.grad_sync == "after_backward",
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

// Parallel degrees and the world size, and the order of rank numbers.

namespace {

constexpr std::int64_t max_product = std::numeric_limits<std::int64_t>::max();

struct Size {
  const char* key;
  const char* path;
  std::int64_t value;
};

std::vector<Size> dense_sizes(const Facts& facts) {
  const ParallelConfig& parallel = facts.parallel();
  return {{"tensor_parallel", "parallel.tensor_parallel", parallel.tensor_parallel},
          {"pipeline_stages", "parallel.pipeline_stages", parallel.pipeline_stages},
          {"context_parallel", "parallel.context_parallel", parallel.context_parallel}};
}

/// Text " = 12"; products above any possible number of ranks are not written out.
std::string equals(std::int64_t product) {
  return product <= max_ranks ? formatted(" = {}", product)
                              : formatted(" (more than {})", max_ranks);
}

std::string world_of(std::int64_t world) { return named("the world size", world); }

std::string factors_of(const std::vector<Size>& sizes) {
  return joined(sizes, " x ", [](const Size& size) { return named(size.key, size.value); });
}

void check_ranges(const ParallelConfig& parallel, Check& check) {
  check.range("parallel.device_num", parallel.device_num.value_or(1), 1, max_ranks);
  check.range("parallel.data_parallel", parallel.data_parallel.value_or(1), 1, max_ranks);
  check.range("parallel.tensor_parallel", parallel.tensor_parallel, 1, max_ranks);
  check.range("parallel.context_parallel", parallel.context_parallel, 1, max_ranks);
  check.range("parallel.expert_parallel", parallel.expert_parallel, 1, max_ranks);
  check.range("parallel.expert_tensor_parallel", parallel.expert_tensor_parallel.value_or(1), 1,
              max_ranks);
  check.range("parallel.pipeline_stages", parallel.pipeline_stages, 1, max_ranks);
  check.range("parallel.virtual_pipeline_stages", parallel.virtual_pipeline_stages, 1, max_ranks);
}

/// Divides the number of ranks by each size and reports the first that leaves a remainder.
void report_indivisible(const std::vector<Size>& sizes, std::int64_t world, Check& check) {
  std::int64_t left = world;
  for (const Size& size : sizes) {
    if (left % size.value == 0) {
      left /= size.value;
      continue;
    }
    std::int64_t product = 1;
    for (const Size& one : sizes) product = product_of({product, one.value});
    return check.error(
        "world-size", size.path, indivisible(world_of(world), factors_of(sizes) + equals(product)),
        formatted("set {} to {}{}", size.key, divisors_near(left, size.value),
                  product <= max_ranks
                      ? formatted(", or start {} ranks", multiples_near(product, world))
                      : ""));
  }
}

void check_split_world(const Facts& facts, std::int64_t world, Check& check) {
  const std::vector<Size> sizes = dense_sizes(facts);
  std::int64_t split = 1;
  for (const Size& size : sizes) split = product_of({split, size.value});
  if (!facts.parallel().data_parallel) {
    if (world % split != 0) report_indivisible(sizes, world, check);
    return;
  }
  const std::int64_t data = *facts.parallel().data_parallel;
  const std::int64_t product = product_of({split, data});
  if (product == world) return;
  std::vector<std::string> legal;
  if (world % split == 0) {
    legal.push_back(formatted("set data_parallel to {} or leave it out", world / split));
  }
  for (const Size& size : sizes) {
    const std::int64_t rest = product / size.value;
    if (size.value == 1 || product == max_product || world % rest != 0) continue;
    legal.push_back(formatted("set {} to {}", size.key, world / rest));
  }
  if (product <= max_ranks) legal.push_back("start " + counted(product, "rank"));
  check.error("world-size", "parallel.data_parallel",
              formatted("{} must equal {} x {}{}", world_of(world), factors_of(sizes),
                        named("data_parallel", data), equals(product)),
              alternatives(legal));
}

void check_world(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  const std::int64_t world = facts.site.world_size;
  if (parallel.device_num && *parallel.device_num != world) {
    check.error(
        "device-num", "parallel.device_num",
        formatted("{} must equal {}", named("device_num", *parallel.device_num), world_of(world)),
        formatted("set device_num to {} or leave it out, or start {}", world,
                  counted(*parallel.device_num, "rank")));
  }
  if (parallel.parallel_mode == ParallelMode::stand_alone && world != 1) {
    return check.error(
        "stand-alone", "parallel.parallel_mode",
        formatted("parallel_mode stand_alone needs one rank, but {} is larger", world_of(world)),
        "set parallel_mode to data_parallel, or start one rank");
  }
  if (facts.splits) {
    check_split_world(facts, world, check);
  } else if (parallel.data_parallel && *parallel.data_parallel != world) {
    check.error("world-size", "parallel.data_parallel",
                formatted("{} must equal {}", named("data_parallel", *parallel.data_parallel),
                          world_of(world)),
                formatted("set data_parallel to {} or leave it out, or start {}", world,
                          counted(*parallel.data_parallel, "rank")));
  }
}

/// Checks that the sizes for experts factorise the same number of ranks.
void check_expert_world(const Facts& facts, Check& check) {
  if (!facts.splits || !facts.mesh_is_clean(check)) return;
  const ParallelConfig& parallel = facts.parallel();
  const std::int64_t tensor = parallel.expert_tensor_parallel.value_or(parallel.tensor_parallel);
  const std::int64_t product =
      product_of({tensor, parallel.expert_parallel, parallel.pipeline_stages});
  const std::int64_t world = facts.site.world_size;
  if (world % product == 0) return;
  const std::int64_t stage = world / parallel.pipeline_stages;
  const bool by_tensor = stage % tensor != 0 && parallel.expert_tensor_parallel;
  const std::string help =
      by_tensor
          ? "set expert_tensor_parallel to " + divisors_near(stage, tensor)
          : "set expert_parallel to " + divisors_near(stage / tensor, parallel.expert_parallel);
  check.error(
      "expert-world-size",
      by_tensor ? "parallel.expert_tensor_parallel" : "parallel.expert_parallel",
      indivisible(world_of(world),
                  formatted("{} x {} x {}{}", named("expert_tensor_parallel", tensor),
                            named("expert_parallel", parallel.expert_parallel),
                            named("pipeline_stages", parallel.pipeline_stages), equals(product))),
      help + (product <= max_ranks
                  ? formatted(", or start {} ranks", multiples_near(product, world))
                  : ""));
}

std::vector<std::string> words_of_order(const std::string& order) {
  std::vector<std::string> words(1);
  for (const char letter : order) {
    if (letter == '-') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter + 32 : letter);
    }
  }
  return words;
}

/// Checks the words of the order; returns whether it is valid.
bool check_order_words(const std::string& order, Check& check) {
  const std::vector<std::string> known{"tp", "cp", "ep", "dp", "pp"};
  std::vector<std::string> seen;
  for (const std::string& word : words_of_order(order)) {
    const bool twice = std::ranges::find(seen, word) != seen.end();
    seen.push_back(word);
    if (!twice && std::ranges::find(known, word) != known.end()) continue;
    check.error(
        "rank-order", "parallel.rank_order",
        twice ? formatted("{} occurs twice in {}", word, order)
              : formatted("unknown axis \"{}\" in {}; available: tp, cp, ep, dp, pp", word, order),
        "set rank_order to tp-cp-ep-dp-pp or tp-pp-ep-dp-cp, for example");
    return false;
  }
  return true;
}

/// An axis may be missing in the order only if its size is 1 for dense layers and for experts.
bool check_order_missing(const Facts& facts, Check& check) {
  std::vector<Axis> appended;
  parse_order(facts.parallel().rank_order, appended);
  const Mesh& mesh = facts.mesh;
  for (const Axis axis : appended) {
    const std::int64_t expert = axis == Axis::tp   ? mesh.etp
                                : axis == Axis::dp ? mesh.edp
                                                   : mesh.size(axis);
    const std::int64_t size = std::max(mesh.size(axis), expert);
    if (size == 1) continue;
    const std::string name(name_of(axis));
    check.error(
        "rank-order-missing", "parallel.rank_order",
        formatted("{} must name {}, which has {}", facts.parallel().rank_order, name,
                  counted(size, "rank")),
        formatted("set rank_order to {}-{} or tp-cp-ep-dp-pp", facts.parallel().rank_order, name));
    return false;
  }
  return true;
}

/// The rank distance of neighbours in a pipeline group, computed with the sizes for experts.
std::int64_t expert_pipeline_stride(const Mesh& mesh) {
  std::int64_t stride = 1;
  for (const Axis axis : mesh.order) {
    if (axis == Axis::pp) break;
    stride *= axis == Axis::tp   ? mesh.etp
              : axis == Axis::dp ? mesh.edp
              : axis == Axis::ep ? mesh.ep
                                 : 1;
  }
  return stride;
}

void check_order(const Facts& facts, Check& check) {
  const std::string& order = facts.parallel().rank_order;
  if (!check.clean({"parallel.rank_order"}) || !check_order_words(order, check)) return;
  if (!facts.mesh_is_clean(check) || !check_order_missing(facts, check)) return;
  const Mesh& mesh = facts.mesh;
  if (mesh.pp == 1) return;
  const std::int64_t dense = mesh.stride(Axis::pp);
  const std::int64_t expert = expert_pipeline_stride(mesh);
  const bool ends_in_pp = words_of_order(order).back() == "pp";
  const std::string help = "set rank_order to tp-cp-ep-dp-pp";
  if (!ends_in_pp && mesh.edp != mesh.dp) {
    check.error(
        "rank-order-pipeline", "parallel.rank_order",
        formatted(
            "{} must end in pp, because experts have {} data-parallel ranks and dense layers {}",
            order, mesh.edp, mesh.dp),
        help + ", or to another order that ends in pp");
  } else if (dense != expert) {
    check.error(
        "rank-order-pipeline", "parallel.rank_order",
        formatted("{} puts pipeline neighbours {} ranks apart for dense layers, but {} for experts",
                  order, dense, expert),
        help);
  }
}

}  // namespace

void check_mesh(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  check_ranges(parallel, check);
  if (facts.mesh_is_clean(check)) check_world(facts, check);
  check_expert_world(facts, check);
  check_order(facts, check);
  const std::int64_t world = facts.site.world_size;
  if (check.clean({"parallel.global_rank", "parallel.device_num"}) &&
      (parallel.global_rank < 0 || parallel.global_rank >= world)) {
    check.error(
        "global-rank", "parallel.global_rank",
        formatted("{} must be from 0 to {} with {}", named("global_rank", parallel.global_rank),
                  world - 1, counted(world, "rank")),
        "leave global_rank out: the launcher numbers the ranks");
  }
}

}  // namespace trainctl
