// Every upstream option that is supported changes what it says: the plan, or what a step computes.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "catch.h"
#include "config/read/read.h"
#include "config/support/standing.h"
#include "config/upstream/upstream.h"
#include "formats/print/print.h"
#include "plan/prepare/make_plan.h"
#include "sample_run.h"
#include "thorough.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;
using Json = nlohmann::json;

/// An option, and two values of it that a plan or a step tells apart. Words of `base` and those
/// after a value are other settings, or names of some.
struct Switched {
  const char* path;
  int ranks;
  const char* base;
  const char* one;
  const char* other;
};

const std::map<std::string, std::string> named_settings{
    {"tp", "parallel.tensor_parallel=2"},
    {"cp", "parallel.context_parallel=2"},
    {"pp", "parallel.pipeline_stages=2"},
    {"moe", "moe.num_experts=4"},
    {"bf16", "precision.compute=bf16"},
    {"recompute", "recompute.enable=true"},
    {"fusion", "parallel.bucket_rule=comm_fusion"},
    {"zero",
     "parallel.parallel_mode=hybrid_parallel parallel.parallel_optimizer.enable=true "
     "parallel.parallel_optimizer.threshold=0"},
    {"offload", "offload.enable=true offload.num_layers=1"},
    {"wide", "model.hidden_size=128 model.ffn_hidden_size=512 model.num_layers=12"},
    {"overlap",
     "parallel.tensor_parallel=2 parallel.sequence_parallel=true "
     "parallel.tp_comm_overlap.enable=true"},
};

constexpr Switched in_plans[] = {
    {"parallel.parallel_mode", 2, "tp", "hybrid_parallel", "data_parallel"},
    {"parallel.tensor_parallel", 2, "", "1", "2"},
    {"parallel.sequence_parallel", 2, "tp", "false", "true"},
    {"parallel.context_parallel", 2, "", "1", "2"},
    {"parallel.cp_comm_type", 2, "cp", "p2p", "[a2a,p2p]"},
    {"parallel.hierarchical_context_parallel_sizes", 4,
     "model.num_attention_heads=8 parallel.context_parallel=4 parallel.cp_comm_type=a2a+p2p",
     "[2,2]", "[4,1]"},
    {"parallel.data_parallel", 2, "", "2", "1 parallel.tensor_parallel=2"},
    {"parallel.expert_parallel", 2, "moe", "1", "2"},
    {"parallel.expert_tensor_parallel", 2, "moe tp", "2", "1"},
    {"parallel.pipeline_stages", 2, "", "1", "2"},
    {"parallel.virtual_pipeline_stages", 2, "pp model.num_layers=4", "1", "2"},
    {"parallel.vocab_emb_dp", 2, "tp", "false", "true"},
    {"parallel.enable_alltoall", 2,
     "tp parallel.parallel_mode=semi_auto_parallel parallel.operator_splits.attention=tokens",
     "false", "true"},
    {"parallel.dataset_strategy", 2, "parallel.parallel_mode=semi_auto_parallel", "data_parallel",
     "full_batch"},
    {"parallel.gradient_fp32_sync", 2, "bf16 parallel.parallel_mode=hybrid_parallel", "true",
     "false"},
    {"parallel.force_fp32_communication", 2, "bf16 tp", "false", "true"},
    {"parallel.gradient_accumulation_fusion", 2, "tp", "true", "false"},
    {"parallel.gradient_aggregation_group", 2, "parallel.bucket_rule=layers", "1", "2"},
    {"parallel.bucket_size", 2, "", "2000", "4000"},
    {"parallel.comm_fusion.openstate", 2, "fusion parallel.comm_fusion.allreduce.mode=auto", "true",
     "false"},
    {"parallel.comm_fusion.allreduce.mode", 2, "fusion", "auto",
     "index parallel.comm_fusion.allreduce.config=[3]"},
    {"parallel.comm_fusion.allreduce.config", 2, "fusion parallel.comm_fusion.allreduce.mode=index",
     "[3]", "[5]"},
    {"parallel.comm_fusion.allgather.mode", 2, "fusion zero wide", "auto",
     "size parallel.comm_fusion.allgather.config=1"},
    {"parallel.comm_fusion.allgather.config", 2,
     "fusion zero wide parallel.comm_fusion.allgather.mode=size", "1", "4"},
    {"parallel.comm_fusion.reducescatter.mode", 2, "fusion zero wide", "auto",
     "size parallel.comm_fusion.reducescatter.config=1"},
    {"parallel.comm_fusion.reducescatter.config", 2,
     "fusion zero wide parallel.comm_fusion.reducescatter.mode=size", "1", "4"},
    {"parallel.parallel_optimizer.enable", 2, "parallel.parallel_mode=hybrid_parallel", "false",
     "true"},
    {"parallel.parallel_optimizer.threshold", 2, "zero", "0", "1"},
    {"parallel.parallel_optimizer.optimizer_level", 2, "zero", "level1", "level3"},
    {"parallel.parallel_optimizer.weight_shard_size", 4, "zero", "-1", "2"},
    {"parallel.parallel_optimizer.gradient_accumulation_shard", 2, "zero", "false", "true"},
    {"parallel.pipeline.account_for_embedding", 2, "pp model.num_layers=3",
     "false parallel.pipeline.last_stage_layers=1", "true"},
    {"parallel.pipeline.account_for_loss", 2, "pp model.num_layers=3",
     "false parallel.pipeline.first_stage_layers=1", "true"},
    {"parallel.pipeline.batch_p2p_comm", 4,
     "parallel.pipeline_stages=4 model.num_layers=8 parallel.virtual_pipeline_stages=2 "
     "train.micro_batch_size=1",
     "true", "false"},
    {"parallel.pipeline.deallocate_outputs", 2, "pp", "false", "true"},
    {"parallel.pipeline.defer_embedding_wgrad_compute", 2,
     "pp parallel.gradient_accumulation_fusion=true", "false", "true"},
    {"parallel.pipeline.wgrad_deferral_limit", 2,
     "pp parallel.gradient_accumulation_fusion=true "
     "parallel.pipeline.defer_embedding_wgrad_compute=true train.micro_batch_size=1",
     "0", "1"},
    {"parallel.pipeline.dtype", 2, "pp", "fp32", "bf16"},
    {"parallel.pipeline.first_stage_layers", 2, "pp model.num_layers=3", "1", "2"},
    {"parallel.pipeline.layout", 2, "pp model.num_layers=3", "Et|ttL", "Ett|tL"},
    {"parallel.pipeline.last_stage_layers", 2, "pp model.num_layers=3", "1", "2"},
    {"parallel.pipeline.interleave", 2, "pp model.num_layers=4", "false",
     "true parallel.virtual_pipeline_stages=2 parallel.pipeline.overlap_p2p_comm=true"},
    {"parallel.pipeline.microbatch_group_size_per_vp_stage", 2,
     "pp model.num_layers=4 parallel.virtual_pipeline_stages=2", "2", "4"},
    {"parallel.pipeline.overlap_p2p_comm", 4,
     "parallel.pipeline_stages=4 model.num_layers=8 parallel.virtual_pipeline_stages=2 "
     "train.micro_batch_size=1",
     "false", "true"},
    {"parallel.pipeline.scheduler", 2, "pp", "1f1b", "gpipe"},
    {"parallel.pipeline.use_ring_exchange_p2p", 4,
     "parallel.pipeline_stages=4 model.num_layers=8 parallel.virtual_pipeline_stages=2 "
     "train.micro_batch_size=1 parallel.pipeline.batch_p2p_comm=false",
     "false", "true"},
    {"parallel.pipeline.variable_seq_lengths", 2, "pp data.packing=false", "false", "true"},
    {"parallel.delay_wgrad_compute", 2, "pp", "false", "true"},
    {"recompute.enable", 1, "", "false", "true"},
    {"recompute.mp_comm_recompute", 2, "tp recompute parallel.sequence_parallel=true", "true",
     "false"},
    {"recompute.num_microbatches_with_partial_activation_checkpoints", 2, "pp recompute", "null",
     "1"},
    {"recompute.parallel_optimizer_comm_recompute", 2,
     "zero recompute parallel.parallel_optimizer.optimizer_level=level1 model.num_layers=4",
     "false", "true"},
    {"recompute.slice_activation", 2, "tp recompute", "false", "true"},
    {"offload.enable", 1, "offload.num_layers=1", "false", "true"},
    {"offload.activations", 1, "offload bf16 offload.weights=true", "true", "false"},
    {"offload.double_buffering", 1, "offload model.num_layers=4 offload.num_layers=3", "false",
     "true"},
    {"offload.num_layers", 1, "model.num_layers=3 offload", "1", "2"},
    {"offload.weights", 1, "offload bf16", "false", "true"},
    {"parallel.tp_comm_overlap.enable", 2, "tp parallel.sequence_parallel=true", "false", "true"},
    {"parallel.tp_comm_overlap.ag", 2, "overlap", "true", "false"},
    {"parallel.tp_comm_overlap.rs", 2, "overlap", "true", "false"},
    {"parallel.tp_comm_overlap.rs_dgrad", 2, "overlap", "false", "true"},
    {"parallel.tp_comm_overlap.bulk_dgrad", 2, "overlap", "true", "false"},
    {"parallel.tp_comm_overlap.bulk_wgrad", 2, "overlap", "true", "false"},
    {"parallel.tp_comm_overlap.disable_qkv", 2, "overlap", "false", "true"},
    {"parallel.tp_comm_overlap.disable_fc1", 2, "overlap", "false", "true"},
    {"precision.compute", 1, "", "fp32", "bf16"},
    {"precision.enable_autocast", 1, "precision.autocast_dtype=bf16", "false", "true"},
    {"precision.autocast_dtype", 1, "precision.enable_autocast=true", "bf16", "fp16"},
    {"hooks.grad_sync", 2, "parallel.bucket_size=2000", "overlap", "after_backward"},
    {"hooks.no_sync", 2, "train.micro_batch_size=1", "last_microbatch", "never"},
    {"hooks.param_sync", 2, "zero", "overlap", "before_forward"},
    {"log.barrier_with_timers", 2, "hooks.timers=true", "false", "true"},
    {"train.micro_batch_num", 1, "", "8 train.micro_batch_size=1", "4 train.micro_batch_size=2"},
    {"moe.num_experts", 1, "moe", "4", "8"},
    {"moe.router_topk", 1, "moe", "1", "2"},
    {"moe.comp_comm_parallel", 2, "moe parallel.expert_parallel=2", "false", "true"},
    {"moe.overlap_expert_parallel_comm", 2, "moe parallel.expert_parallel=2", "false", "true"},
    {"moe.comp_comm_parallel_degree", 2,
     "moe parallel.expert_parallel=2 moe.comp_comm_parallel=true", "2", "4"},
    {"moe.expert_group_size", 1, "moe", "16", "4"},
    {"moe.ffn_hidden_size", 1, "moe", "16", "32"},
    {"moe.group_wise_a2a", 4, "moe tp parallel.expert_parallel=2", "false", "true"},
    {"moe.router_enable_expert_bias", 1, "moe moe.router_score_function=sigmoid", "false", "true"},
    {"moe.shared_expert_intermediate_size", 1, "moe model.add_bias_linear=false", "16", "32"},
    {"moe.shared_expert_gate", 1,
     "moe model.add_bias_linear=false moe.shared_expert_intermediate_size=16", "false", "true"},
    {"model.cross_entropy_loss_fusion", 1, "", "true", "false"},
    {"model.perform_initialization", 1, "", "true", "false"},
};

/// These leave the plan as it is: two steps differ.
constexpr Switched in_steps[] = {
    {"parallel.gradients_mean", 2, "parallel.parallel_mode=data_parallel", "true", "false"},
    {"parallel.loss_repeated_mean", 2, "tp parallel.parallel_mode=semi_auto_parallel", "true",
     "false"},
    {"hooks.grad_scale", 1, "precision.compute=fp16 precision.initial_loss_scale=1024",
     "loss_scale", "none"},
    {"moe.aux_loss_factor", 1, "moe", "0.05", "0.2"},
    {"moe.capacity_factor", 1, "moe", "1.0", "1.5"},
    {"moe.router_score_function", 1, "moe", "softmax", "sigmoid"},
    {"moe.router_topk_scaling_factor", 1, "moe moe.router_score_function=sigmoid", "1.0", "1.5"},
    {"moe.router_bias_update_rate", 1,
     "moe moe.router_score_function=sigmoid moe.router_enable_expert_bias=true", "0.001", "0.5"},
    {"moe.router_num_groups", 1, "moe moe.router_score_function=sigmoid moe.router_topk=2", "1",
     "2"},
    {"moe.router_group_topk", 1,
     "moe moe.router_score_function=sigmoid moe.router_num_groups=2 moe.router_topk=2", "1", "2"},
};

/// Options that change neither, by design.
const std::map<std::string, std::string> without_effect{
    {"train.deterministic_mode", "of attention by cuDNN: tests/plan/attention_backend_test.cpp"},
    {"offload.context", "null is its only value"},
    {"hooks.finalize_model_grads", "false is refused wherever it would change something"},
    {"hooks.timers", "measures, so that a run is slower but the same"},
    {"parallel.device_num", "must be the number of ranks"},
    {"parallel.global_rank", "chooses which rank `plan` shows"},
    {"parallel.parameter_broadcast", "sends initial values that are equal anyway"},
    {"parallel.pipeline.result_broadcast", "of validation and generation, not of steps"},
    {"parallel.search_mode",
     "finds keys before there is a plan: tests/plan/search_layout_test.cpp"},
    {"parallel.group_ckpt_save_file", "names a file that is written"},
    {"parallel.strategy_ckpt_config.save_file", "names a file that is written"},
    {"parallel.strategy_ckpt_config.only_trainable_params", "is of that file's contents"},
    {"parallel.strategy_ckpt_config.load_file", "the file decides: tests/formats"},
};

/// Settings as `--set` takes them.
Options settings(const std::string& words) {
  Options all;
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    const auto named = named_settings.find(word);
    if (named == named_settings.end()) {
      all.push_back(word);
    } else {
      const Options more = settings(named->second);
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  return all;
}

Options with_value(const Switched& row, const char* value) {
  return settings(std::string(row.base) + " " + row.path + "=" + value);
}

/// A model without sizes of buckets and of the batch, on a machine with rates.
const char* const planned_yaml = R"(
model: {family: gpt2, num_layers: 2, hidden_size: 32, ffn_hidden_size: 64, num_attention_heads: 4,
        seq_length: 16, vocab_size: 61}
data: {train: none}
train: {steps: 100, global_batch_size: 8}
lr_schedule: {max_lr: 1.0e-2}
parallel: {threads_per_rank: 1}
cluster: {matmul_flops: 1.0e+9, memory_bandwidth: 1.0e+9, latency: 1.0e-5, bandwidth: 1.0e+8}
)";

/// Times count if they differ by more than a millionth; a sum taken in another order does not.
void round_numbers(Json& json) {
  if (json.is_structured()) {
    for (Json& inner : json) round_numbers(inner);
  } else if (json.is_number_float()) {
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%.6g", json.get<double>());
    json = text.data();
  }
}

/// Rows, bytes, memory and time of rank 0: the document without its hash and its warnings.
std::string plan_text(const Options& options, int ranks) {
  const ReadResult read = read_config_text(planned_yaml, "planned.yaml", options);
  Diagnostics diagnostics = read.diagnostics;
  const Plan plan = make_plan(read.config, {.world_size = ranks, .ranks_per_host = ranks},
                              read.sources, diagnostics);
  INFO(render_text(diagnostics, false));
  REQUIRE_FALSE(diagnostics.has_errors());
  Json json = Json::parse(print_json({.plan = plan, .config = &read.config, .rank = 0}));
  json.erase("hash");
  json.erase("diagnostics");
  round_numbers(json);
  return json.dump();
}

std::vector<double> numbers_of_steps(const Options& options, int ranks) {
  std::vector<double> numbers;
  for (const StepReport& report :
       train_sample({.set_options = options, .ranks = ranks, .steps = 3, .world = {}})) {
    numbers.insert(numbers.end(), {report.loss, report.grad_norm, report.loss_scale.value_or(0)});
  }
  return numbers;
}

}  // namespace

TEST_CASE("every upstream option that is supported has two values that a test tells apart") {
  std::set<std::string> tested;
  for (const Switched& row : in_plans) tested.insert(row.path);
  for (const Switched& row : in_steps) tested.insert(row.path);
  for (const auto& [path, reason] : without_effect) {
    INFO(path);
    CHECK(tested.insert(path).second);
  }
  const std::vector<UpstreamKey>& keys = all_upstream_keys();
  const auto is_section = [&](const std::string& path) {
    return std::ranges::any_of(
        keys, [&](const UpstreamKey& key) { return key.path.starts_with(path + "."); });
  };
  std::set<std::string> supported;
  for (const UpstreamKey& key : keys) {
    const std::string path(key.path);
    if (path.empty() || status_of(path) != "supported" || is_section(path)) continue;
    supported.insert(path);
    INFO(path);
    CHECK(tested.contains(path));
  }
  CHECK(supported.size() > 90);
}

TEST_CASE("switching an upstream option changes the plan") {
  for (const Switched& row : some_of(in_plans)) {
    INFO(row.path);
    CHECK(plan_text(with_value(row, row.one), row.ranks) !=
          plan_text(with_value(row, row.other), row.ranks));
  }
}

TEST_CASE("switching an upstream option that leaves the plan changes the steps") {
  for (const Switched& row : in_steps) {
    INFO(row.path);
    const Options one = with_value(row, row.one);
    const Options other = with_value(row, row.other);
    CHECK(numbers_of_steps(one, row.ranks) == numbers_of_steps(one, row.ranks));
    CHECK(numbers_of_steps(one, row.ranks) != numbers_of_steps(other, row.ranks));
  }
}
