// mindformers.modules.transformer: TransformerOpParallelConfig with TransformerRecomputeConfig, and
// MoEConfig.
#include "config/upstream/lists.h"

namespace trainctl {
namespace {

using enum Conversion;

constexpr UpstreamKey mindformers_rows[] = {
    {"data_parallel",
     "parallel.data_parallel",
     "1",
     same,
     {},
     "Default: computed from the world size, not 1."},
    {"model_parallel", "parallel.tensor_parallel", "1"},
    {"expert_parallel", "parallel.expert_parallel", "1"},
    {"pipeline_stage", "parallel.pipeline_stages", "1"},
    {"micro_batch_num",
     "train.micro_batch_num",
     "1",
     same,
     {},
     "Default: computed from the batch sizes."},
    {"recompute",
     "recompute.enable",
     "false",
     recompute,
     {},
     "A bool, a number of layers for each stage, or a map with the keys below."},
    {"recompute.recompute", "recompute.enable", "false", recompute},
    {"recompute.parallel_optimizer_comm_recompute", "recompute.parallel_optimizer_comm_recompute",
     "false"},
    {"recompute.mp_comm_recompute", "recompute.mp_comm_recompute", "true"},
    {"recompute.recompute_slice_activation", "recompute.slice_activation", "false"},
    {"optimizer_shard",
     "parallel.parallel_optimizer.enable",
     "false",
     same,
     {},
     "The same as enable_parallel_optimizer; if both are given, they must agree."},
    {"gradient_aggregation_group",
     "parallel.gradient_aggregation_group",
     "4",
     same,
     {},
     "A number of groups, as in MindFormers' code. Default: bucket_rule decides."},
    {"vocab_emb_dp",
     "parallel.vocab_emb_dp",
     "true",
     same,
     {},
     "Default: true without tensor parallelism, else false."},
    {"expert_num", "moe.num_experts", "1", same, {}, {}, "moe"},
    {"capacity_factor", "moe.capacity_factor", "1.1", same, {}, {}, "moe"},
    {"aux_loss_factor", "moe.aux_loss_factor", "0.05", same, {}, {}, "moe"},
    {"num_experts_chosen", "moe.router_topk", "1", same, {}, {}, "moe"},
    {"expert_group_size", "moe.expert_group_size", "null", same, {}, {}, "moe"},
    {"group_wise_a2a", "moe.group_wise_a2a", "false", same, {}, {}, "moe"},
    {"comp_comm_parallel", "moe.comp_comm_parallel", "false", same, {}, {}, "moe"},
    {"comp_comm_parallel_degree", "moe.comp_comm_parallel_degree", "2", same, {}, {}, "moe"},
};

constexpr std::pair<std::string_view, std::string_view> sections[] = {
    {"parallel_config", "parallel"}, {"recompute_config", "recompute"}, {"moe_config", "moe"}};

}  // namespace

std::span<const UpstreamKey> mindformers_keys() { return mindformers_rows; }
std::span<const std::pair<std::string_view, std::string_view>> upstream_sections() {
  return sections;
}

}  // namespace trainctl
