// The rows of the table in upstream.h, one list per project.

#include "config/upstream/upstream.h"

namespace trainctl {

namespace {

// mindspore.set_auto_parallel_context, r2.3, with nested keys.

using enum Conversion;

constexpr UpstreamKey mindspore_rows[] = {
    {"device_num", "parallel.device_num", "1", same, {}, "Default: the number of ranks."},
    {"global_rank",
     "parallel.global_rank",
     "0",
     same,
     {},
     "The rank that `plan` shows; the launcher numbers the ranks."},
    {"gradients_mean",
     "parallel.gradients_mean",
     "false",
     same,
     {},
     "Default: true, the mean loss over the tokens of the global batch, in every layout."},
    {"gradient_fp32_sync", "parallel.gradient_fp32_sync", "true"},
    {"loss_repeated_mean", "parallel.loss_repeated_mean", "true"},
    {"parallel_mode",
     "parallel.parallel_mode",
     "stand_alone",
     same,
     {},
     "MindFormers' numbers 0 to 3 and upper-case names are accepted too."},
    {"search_mode", "parallel.search_mode", "recursive_programming"},
    {"auto_parallel_search_mode", "parallel.search_mode", "recursive_programming", same,
     "search_mode"},
    {"parameter_broadcast", "parallel.parameter_broadcast", "false"},
    {"strategy_ckpt_load_file", "parallel.strategy_ckpt_config.load_file", "\"\"", same,
     "strategy_ckpt_config.load_file"},
    {"strategy_ckpt_save_file", "parallel.strategy_ckpt_config.save_file", "\"\"", same,
     "strategy_ckpt_config.save_file"},
    {"strategy_ckpt_config", "parallel.strategy_ckpt_config", "null", dict},
    {"strategy_ckpt_config.load_file", "parallel.strategy_ckpt_config.load_file", "\"\""},
    {"strategy_ckpt_config.save_file", "parallel.strategy_ckpt_config.save_file", "\"\""},
    {"strategy_ckpt_config.only_trainable_params",
     "parallel.strategy_ckpt_config.only_trainable_params", "true"},
    {"full_batch", "parallel.dataset_strategy", "false", full_batch, "dataset_strategy",
     "true means full_batch; false means data_parallel, unless dataset_strategy gives splits."},
    {"dataset_strategy",
     "parallel.dataset_strategy",
     "data_parallel",
     same,
     {},
     "Write tuples as lists: [[2, 1], [2, 1]]."},
    {"enable_parallel_optimizer", "parallel.parallel_optimizer.enable", "false"},
    {"parallel_optimizer_config", "parallel.parallel_optimizer", "null", dict},
    {"parallel_optimizer_config.gradient_accumulation_shard",
     "parallel.parallel_optimizer.gradient_accumulation_shard", "true"},
    {"parallel_optimizer_config.parallel_optimizer_threshold",
     "parallel.parallel_optimizer.threshold", "64"},
    {"parallel_optimizer_config.optimizer_weight_shard_size",
     "parallel.parallel_optimizer.weight_shard_size", "-1"},
    {"parallel_optimizer_config.optimizer_level", "parallel.parallel_optimizer.optimizer_level",
     "null"},
    {"enable_alltoall", "parallel.enable_alltoall", "false"},
    {"force_fp32_communication", "parallel.force_fp32_communication", "false"},
    {"all_reduce_fusion_config",
     "parallel.comm_fusion.allreduce.config",
     "null",
     index_fusion,
     {},
     "The same as comm_fusion.allreduce {mode: index}; each index is the last gradient of its "
     "block."},
    {"pipeline_stages", "parallel.pipeline_stages", "1"},
    {"pipeline_result_broadcast", "parallel.pipeline.result_broadcast", "false"},
    {"pipeline_config",
     "parallel.pipeline",
     "null",
     dict,
     {},
     "Each key may be given without the other."},
    {"pipeline_config.pipeline_interleave", "parallel.pipeline.interleave", "false"},
    {"pipeline_config.pipeline_scheduler",
     "parallel.pipeline.scheduler",
     "1f1b",
     same,
     {},
     "gpipe does not need pipeline_interleave; zb-h1 and zb-v are schedules of trainctl."},
    {"comm_fusion",
     "parallel.comm_fusion",
     "null",
     dict,
     {},
     "Default: bucket_rule decides; gradients are not all fused into one block."},
    {"comm_fusion.openstate", "parallel.comm_fusion.openstate", "true"},
    {"comm_fusion.allreduce", "parallel.comm_fusion.allreduce", "null", dict},
    {"comm_fusion.allreduce.mode", "parallel.comm_fusion.allreduce.mode", "auto"},
    {"comm_fusion.allreduce.config", "parallel.comm_fusion.allreduce.config", "null"},
    {"comm_fusion.allgather", "parallel.comm_fusion.allgather", "null", dict},
    {"comm_fusion.allgather.mode", "parallel.comm_fusion.allgather.mode", "auto"},
    {"comm_fusion.allgather.config", "parallel.comm_fusion.allgather.config", "null"},
    {"comm_fusion.reducescatter", "parallel.comm_fusion.reducescatter", "null", dict},
    {"comm_fusion.reducescatter.mode", "parallel.comm_fusion.reducescatter.mode", "auto"},
    {"comm_fusion.reducescatter.config", "parallel.comm_fusion.reducescatter.config", "null"},
    {"group_ckpt_save_file", "parallel.group_ckpt_save_file", "\"\""},
};

std::span<const UpstreamKey> mindspore_keys() { return mindspore_rows; }

}  // namespace

// mindformers.modules.transformer: TransformerOpParallelConfig with TransformerRecomputeConfig, and
// MoEConfig.
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

std::span<const UpstreamKey> mindformers_keys() { return mindformers_rows; }

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> upstream_sections() {
  return sections;
}

// The 63 fields of Megatron-Core's ModelParallelConfig.
namespace {

using enum Conversion;

constexpr std::string_view dtype_note = "fp32, bf16 or fp16; torch's names are accepted too.";

constexpr UpstreamKey megatron_rows[] = {
    {"tensor_model_parallel_size", "parallel.tensor_parallel", "1"},
    {"pipeline_model_parallel_comm_backend", "parallel.pipeline.comm_backend", "null"},
    {"pipeline_model_parallel_size", "parallel.pipeline_stages", "1"},
    {"virtual_pipeline_model_parallel_size",
     "parallel.virtual_pipeline_stages",
     "null",
     same,
     {},
     "null means 1."},
    {"sequence_parallel", "parallel.sequence_parallel", "false"},
    {"context_parallel_size", "parallel.context_parallel", "1"},
    {"hierarchical_context_parallel_sizes", "parallel.hierarchical_context_parallel_sizes", "null"},
    {"expert_model_parallel_size", "parallel.expert_parallel", "1"},
    {"expert_tensor_parallel_size", "parallel.expert_tensor_parallel", "null"},
    {"moe_extended_tp", "moe.extended_tp", "false", same, "expert_tensor_parallel_size",
     "Ignored, as in Megatron."},
    {"perform_initialization", "model.perform_initialization", "true"},
    {"use_cpu_initialization",
     "model.use_cpu_initialization",
     "false",
     same,
     {},
     "Initial weights are the same on every device."},
    {"fp16", "precision.compute", "false", true_is_fp16, {}, "true: fp16; false is ignored."},
    {"bf16", "precision.compute", "false", true_is_bf16, {}, "true: bf16; false is ignored."},
    {"params_dtype", "precision.compute", "null", same, {}, dtype_note},
    {"timers",
     "hooks.timers",
     "null",
     callable,
     {},
     "C++: Hooks::timers; YAML: hooks.timers true or false, log.timer_level."},
    {"finalize_model_grads_func",
     "hooks.finalize_model_grads",
     "null",
     callable,
     {},
     "C++: Hooks::finalize_model_grads; YAML: hooks.finalize_model_grads true, or false where no "
     "gradients are shared."},
    {"grad_scale_func",
     "hooks.grad_scale",
     "null",
     callable,
     {},
     "YAML: hooks.grad_scale loss_scale or none."},
    {"no_sync_func",
     "hooks.no_sync",
     "null",
     callable,
     {},
     "YAML: hooks.no_sync last_microbatch or never."},
    {"grad_sync_func",
     "hooks.grad_sync",
     "null",
     callable,
     {},
     "C++: Hooks::grad_sync; YAML: hooks.grad_sync overlap or after_backward."},
    {"param_sync_func",
     "hooks.param_sync",
     "null",
     callable,
     {},
     "YAML: hooks.param_sync overlap or before_forward."},
    {"deterministic_mode",
     "train.deterministic_mode",
     "false",
     same,
     {},
     "true by default here; false allows cuDNN's attention a faster form on CUDA."},
    {"enable_autocast", "precision.enable_autocast", "false"},
    {"autocast_dtype", "precision.autocast_dtype", "null", same, {}, dtype_note},
    {"num_microbatches_with_partial_activation_checkpoints",
     "recompute.num_microbatches_with_partial_activation_checkpoints", "null"},
    {"gradient_accumulation_fusion", "parallel.gradient_accumulation_fusion", "false"},
    {"async_tensor_model_parallel_allreduce", "parallel.tp_comm_overlap.async_allreduce", "false",
     same, "tp_comm_overlap", "Ignored, as in Megatron."},
    {"use_te_rng_tracker",
     "model.use_te_rng_tracker",
     "false",
     same,
     {},
     "Random numbers depend only on global indices."},
    {"tp_comm_overlap",
     "parallel.tp_comm_overlap.enable",
     "false",
     same,
     {},
     "A bool; a map is trainctl's section of the same name."},
    {"tp_comm_bulk_wgrad", "parallel.tp_comm_overlap.bulk_wgrad", "true"},
    {"tp_comm_bulk_dgrad", "parallel.tp_comm_overlap.bulk_dgrad", "true"},
    {"tp_comm_overlap_ag", "parallel.tp_comm_overlap.ag", "true"},
    {"tp_comm_overlap_rs", "parallel.tp_comm_overlap.rs", "true"},
    {"tp_comm_overlap_rs_dgrad", "parallel.tp_comm_overlap.rs_dgrad", "false"},
    {"tp_comm_split_ag", "parallel.tp_comm_overlap.split_ag", "true", same, "tp_comm_overlap_ag"},
    {"tp_comm_atomic_ag", "parallel.tp_comm_overlap.atomic_ag", "false", same,
     "tp_comm_overlap_ag"},
    {"tp_comm_split_rs", "parallel.tp_comm_overlap.split_rs", "true", same, "tp_comm_overlap_rs"},
    {"tp_comm_atomic_rs", "parallel.tp_comm_overlap.atomic_rs", "false", same,
     "tp_comm_overlap_rs"},
    {"cross_entropy_loss_fusion",
     "model.cross_entropy_loss_fusion",
     "false",
     same,
     {},
     "true by default here; false: all logits of a micro-batch at once."},
    {"cross_entropy_fusion_impl", "model.cross_entropy_fusion_impl", "native"},
    {"tp_comm_overlap_disable_qkv", "parallel.tp_comm_overlap.disable_qkv", "false"},
    {"tp_comm_overlap_disable_fc1", "parallel.tp_comm_overlap.disable_fc1", "false"},
    {"tp_comm_bootstrap_backend", "parallel.tp_comm_overlap.bootstrap_backend", "nccl"},
    {"overlap_moe_expert_parallel_comm", "moe.overlap_expert_parallel_comm", "false"},
    {"delay_wgrad_compute", "parallel.delay_wgrad_compute", "false"},
    {"pipeline_dtype", "parallel.pipeline.dtype", "null", same, {}, dtype_note},
    {"variable_seq_lengths", "parallel.pipeline.variable_seq_lengths", "false"},
    {"overlap_p2p_comm", "parallel.pipeline.overlap_p2p_comm", "false"},
    {"batch_p2p_comm",
     "parallel.pipeline.batch_p2p_comm",
     "true",
     same,
     {},
     "Default: the opposite of overlap_p2p_comm; both true is an error."},
    {"batch_p2p_sync", "parallel.pipeline.batch_p2p_sync", "true"},
    {"use_ring_exchange_p2p", "parallel.pipeline.use_ring_exchange_p2p", "false"},
    {"deallocate_pipeline_outputs", "parallel.pipeline.deallocate_outputs", "false"},
    {"defer_embedding_wgrad_compute", "parallel.pipeline.defer_embedding_wgrad_compute", "false"},
    {"wgrad_deferral_limit", "parallel.pipeline.wgrad_deferral_limit", "0"},
    {"overlap_p2p_comm_warmup_flush", "parallel.pipeline.overlap_p2p_comm_warmup_flush", "false"},
    {"microbatch_group_size_per_vp_stage", "parallel.pipeline.microbatch_group_size_per_vp_stage",
     "null"},
    {"cpu_offloading", "offload.enable", "false"},
    {"cpu_offloading_num_layers", "offload.num_layers", "0"},
    {"_cpu_offloading_context",
     "offload.context",
     "null",
     internal,
     {},
     "Internal key of Megatron; must be null."},
    {"cpu_offloading_activations", "offload.activations", "true"},
    {"cpu_offloading_weights", "offload.weights", "false"},
    {"cpu_offloading_double_buffering", "offload.double_buffering", "false"},
    {"barrier_with_L1_time", "log.barrier_with_timers", "true"},
};

std::span<const UpstreamKey> megatron_keys() { return megatron_rows; }

}  // namespace

// Keys of the same projects that these lists lack: of Megatron's transformer and data-parallel
// configs, and of later MindFormers.
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
