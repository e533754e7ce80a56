#include "config/upcoming.h"

#include <algorithm>

namespace trainctl {
namespace {

constexpr Upcoming own[] = {
    {"tensor_parallel", "1", ""},
    {"pipeline_stages", "1", ""},
    {"pipeline_parallel", "1", ""},
    {"context_parallel", "1", ""},
    {"expert_parallel", "1", ""},
    {"expert_tensor_parallel", "1", ""},
    {"virtual_pipeline_stages", "1", ""},
    {"sequence_parallel", "false", ""},
    {"parallel_optimizer", "false", ""},
    {"pipeline_schedule", "", ""},
    {"offload", "false", ""},
    {"moe", "", ""},
    {"num_experts", "", ""},
    {"num_moe_experts", "", ""},
    {"moe_router_topk", "", ""},
    {"recompute", "false", ""},
    {"checkpoint", "", "output.save_weights writes the final weights"},
    {"cluster", "", ""},
    {"parallel_config", "", "use the section parallel"},
    {"recompute_config", "", ""},
    {"moe_config", "", ""},
};

constexpr Upcoming mindspore[] = {
    {"global_rank", "", "the launcher numbers the ranks"},
    {"gradients_mean", "", "the loss is a mean over the tokens of the global batch"},
    {"gradient_fp32_sync", "", "gradients are always summed in fp32"},
    {"loss_repeated_mean", "", ""},
    {"search_mode", "", ""},
    {"auto_parallel_search_mode", "", ""},
    {"parameter_broadcast", "", "initial parameters depend on the seed only, not on the rank"},
    {"strategy_ckpt_load_file", "", ""},
    {"strategy_ckpt_save_file", "", ""},
    {"full_batch", "false", ""},
    {"dataset_strategy", "", ""},
    {"enable_parallel_optimizer", "false", ""},
    {"enable_alltoall", "false", ""},
    {"force_fp32_communication", "", "gradients are always summed in fp32"},
    {"all_reduce_fusion_config", "", "parallel.bucket_size"},
    {"pipeline_result_broadcast", "false", ""},
    {"pipeline_config", "", ""},
    {"pipeline_interleave", "false", ""},
    {"pipeline_scheduler", "", ""},
    {"parallel_optimizer_config", "", ""},
    {"gradient_accumulation_shard", "", ""},
    {"parallel_optimizer_threshold", "", ""},
    {"optimizer_weight_shard_size", "", ""},
    {"comm_fusion", "", "parallel.bucket_size"},
    {"openstate", "", ""},
    {"allreduce", "", "parallel.bucket_size"},
    {"allgather", "", ""},
    {"reducescatter", "", ""},
    {"mode", "", ""},
    {"config", "", ""},
    {"strategy_ckpt_config", "", ""},
    {"load_file", "", ""},
    {"save_file", "", ""},
    {"only_trainable_params", "", ""},
    {"group_ckpt_save_file", "", ""},
};

constexpr Upcoming mindformers[] = {
    {"model_parallel", "1", ""},
    {"pipeline_stage", "1", ""},
    {"micro_batch_num", "", "train.micro_batch_size"},
    {"optimizer_shard", "false", ""},
    {"gradient_aggregation_group", "", "parallel.bucket_size"},
    {"vocab_emb_dp", "", ""},
    {"parallel_optimizer_comm_recompute", "false", ""},
    {"mp_comm_recompute", "", ""},
    {"recompute_slice_activation", "false", ""},
    {"expert_num", "1", ""},
    {"capacity_factor", "", ""},
    {"aux_loss_factor", "", ""},
    {"num_experts_chosen", "", ""},
    {"expert_group_size", "", ""},
    {"group_wise_a2a", "false", ""},
    {"comp_comm_parallel", "false", ""},
    {"comp_comm_parallel_degree", "", ""},
};

constexpr Upcoming megatron[] = {
    {"tensor_model_parallel_size", "1", ""},
    {"pipeline_model_parallel_comm_backend", "", ""},
    {"pipeline_model_parallel_size", "1", ""},
    {"virtual_pipeline_model_parallel_size", "1", ""},
    {"context_parallel_size", "1", ""},
    {"hierarchical_context_parallel_sizes", "", ""},
    {"expert_model_parallel_size", "1", ""},
    {"expert_tensor_parallel_size", "1", ""},
    {"moe_extended_tp", "false", ""},
    {"perform_initialization", "true", ""},
    {"use_cpu_initialization", "", "initial values are the same on every device"},
    {"fp16", "", "precision.compute: fp16"},
    {"bf16", "", "precision.compute: bf16"},
    {"params_dtype", "", "precision.compute"},
    {"timers", "", ""},
    {"finalize_model_grads_func", "", ""},
    {"grad_scale_func", "", ""},
    {"no_sync_func", "", ""},
    {"grad_sync_func", "", ""},
    {"param_sync_func", "", ""},
    {"deterministic_mode", "true", "every run is deterministic"},
    {"enable_autocast", "false", ""},
    {"autocast_dtype", "", "precision.compute"},
    {"num_microbatches_with_partial_activation_checkpoints", "", ""},
    {"gradient_accumulation_fusion", "", ""},
    {"async_tensor_model_parallel_allreduce", "", ""},
    {"use_te_rng_tracker", "false", ""},
    {"tp_comm_overlap", "false", ""},
    {"tp_comm_bulk_wgrad", "", ""},
    {"tp_comm_bulk_dgrad", "", ""},
    {"tp_comm_overlap_ag", "", ""},
    {"tp_comm_overlap_rs", "", ""},
    {"tp_comm_overlap_rs_dgrad", "false", ""},
    {"tp_comm_split_ag", "", ""},
    {"tp_comm_atomic_ag", "", ""},
    {"tp_comm_split_rs", "", ""},
    {"tp_comm_atomic_rs", "", ""},
    {"cross_entropy_loss_fusion", "", "the loss is always fused"},
    {"cross_entropy_fusion_impl", "", "the loss is always fused"},
    {"tp_comm_overlap_disable_qkv", "", ""},
    {"tp_comm_overlap_disable_fc1", "", ""},
    {"tp_comm_bootstrap_backend", "", ""},
    {"overlap_moe_expert_parallel_comm", "false", ""},
    {"delay_wgrad_compute", "false", ""},
    {"pipeline_dtype", "", ""},
    {"variable_seq_lengths", "false", ""},
    {"overlap_p2p_comm", "", ""},
    {"batch_p2p_comm", "", ""},
    {"batch_p2p_sync", "", ""},
    {"use_ring_exchange_p2p", "false", ""},
    {"deallocate_pipeline_outputs", "", ""},
    {"defer_embedding_wgrad_compute", "false", ""},
    {"wgrad_deferral_limit", "", ""},
    {"overlap_p2p_comm_warmup_flush", "false", ""},
    {"microbatch_group_size_per_vp_stage", "", ""},
    {"cpu_offloading", "false", ""},
    {"cpu_offloading_num_layers", "0", ""},
    {"_cpu_offloading_context", "", ""},
    {"cpu_offloading_activations", "", ""},
    {"cpu_offloading_weights", "", ""},
    {"cpu_offloading_double_buffering", "", ""},
    {"barrier_with_L1_time", "", ""},
};

template <class Visit>
void for_each_upcoming(Visit&& visit) {
  for (const Upcoming& entry : own) visit(entry);
  for (const Upcoming& entry : mindspore) visit(entry);
  for (const Upcoming& entry : mindformers) visit(entry);
  for (const Upcoming& entry : megatron) visit(entry);
}

}  // namespace

const Upcoming* find_upcoming(std::string_view name) {
  const Upcoming* found = nullptr;
  for_each_upcoming([&](const Upcoming& entry) {
    if (entry.name == name) found = &entry;
  });
  return found;
}

std::vector<std::string> upcoming_names() {
  std::vector<std::string> names;
  for_each_upcoming([&](const Upcoming& entry) { names.emplace_back(entry.name); });
  return names;
}

}  // namespace trainctl
