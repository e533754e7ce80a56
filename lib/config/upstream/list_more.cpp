// Names of the same projects that their lists do not have: Megatron's transformer and
// data-parallel configs, and later MindFormers.
#include "config/upstream/lists.h"

namespace trainctl {
namespace {

using enum Conversion;

constexpr UpstreamKey megatron[] = {
    {"num_layers_in_first_pipeline_stage", "parallel.pipeline.first_stage_layers", "null"},
    {"num_layers_in_last_pipeline_stage", "parallel.pipeline.last_stage_layers", "null"},
    {"decoder_first_pipeline_num_layers", "parallel.pipeline.first_stage_layers", "null"},
    {"decoder_last_pipeline_num_layers", "parallel.pipeline.last_stage_layers", "null"},
    {"account_for_embedding_in_pipeline_split", "parallel.pipeline.account_for_embedding", "false"},
    {"account_for_loss_in_pipeline_split", "parallel.pipeline.account_for_loss", "false"},
    {"pipeline_model_parallel_layout", "parallel.pipeline.layout", "null"},
    {"use_distributed_optimizer", "parallel.parallel_optimizer.enable", "false"},
    {"ddp_bucket_size", "parallel.bucket_size", "null"},
    {"cp_comm_type", "parallel.cp_comm_type", "p2p"},
    {"num_moe_experts", "moe.num_experts", "null", same, {}, {}, "moe"},
    {"moe_router_topk", "moe.router_topk", "2", same, {}, {}, "moe"},
    {"moe_ffn_hidden_size", "moe.ffn_hidden_size", "null", same, {}, {}, "moe"},
    {"moe_router_score_function", "moe.router_score_function", "softmax", same, {}, {}, "moe"},
    {"moe_router_topk_scaling_factor",
     "moe.router_topk_scaling_factor",
     "null",
     same,
     {},
     {},
     "moe"},
    {"moe_router_num_groups", "moe.router_num_groups", "null", same, {}, {}, "moe"},
    {"moe_router_group_topk", "moe.router_group_topk", "null", same, {}, {}, "moe"},
    {"moe_router_enable_expert_bias",
     "moe.router_enable_expert_bias",
     "false",
     same,
     {},
     {},
     "moe"},
    {"moe_router_bias_update_rate", "moe.router_bias_update_rate", "0.001", same, {}, {}, "moe"},
    {"moe_shared_expert_intermediate_size",
     "moe.shared_expert_intermediate_size",
     "null",
     same,
     {},
     {},
     "moe"},
    {"moe_shared_expert_gate", "moe.shared_expert_gate", "false", same, {}, {}, "moe"},
};

constexpr UpstreamKey mindformers[] = {
    {"pp_interleave_num", "parallel.virtual_pipeline_stages", "1"},
    {"context_parallel", "parallel.context_parallel", "1"},
    {"use_seq_parallel", "parallel.sequence_parallel", "false"},
    {"context_parallel_algo",
     "parallel.cp_comm_type",
     "colossalai_cp",
     same,
     {},
     "colossalai_cp means p2p, ulysses_cp a2a, hybrid_cp a2a+p2p."},
    {"gradient_accumulation_steps",
     "train.micro_batch_num",
     "1",
     same,
     {},
     "Per rank, as in Hugging Face; nanoGPT counts all ranks.",
     "train"},
};

}  // namespace

std::span<const UpstreamKey> upstream_keys(Upstream list) {
  switch (list) {
    case Upstream::mindspore: return mindspore_keys();
    case Upstream::mindformers: return mindformers_keys();
    case Upstream::megatron: break;
  }
  return megatron_keys();
}

std::span<const UpstreamKey> further_keys(Upstream list) {
  switch (list) {
    case Upstream::mindspore: break;
    case Upstream::mindformers: return mindformers;
    case Upstream::megatron: return megatron;
  }
  return {};
}

const std::vector<UpstreamKey>& all_upstream_keys() {
  static const std::vector<UpstreamKey> keys = [] {
    std::vector<UpstreamKey> all;
    for (const auto& list :
         {mindspore_keys(), mindformers_keys(), megatron_keys(), further_keys(Upstream::megatron),
          further_keys(Upstream::mindformers)}) {
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }();
  return keys;
}

}  // namespace trainctl
