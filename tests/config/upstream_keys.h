// Every key of the upstream lists, written down from their documentation and not from the program's
// table, with a legal value, what it does to ours, and an illegal value.
#pragma once

namespace trainctl::test {

struct UpstreamCase {
  const char* key;    // nested keys dotted
  const char* legal;  // YAML
  const char* path;   // ours
  const char* value;  // what stands there then, as the dump writes it; "": not given
  const char* illegal;
  const char* code;                  // of the answer to the illegal value
  const char* section = "parallel";  // where the key is written
};

/// set_auto_parallel_context, r2.3: 24 keys, and the 18 nested in five of them.
inline constexpr UpstreamCase mindspore_cases[] = {
    {"device_num", "8", "parallel.device_num", "8", "0", "out-of-range"},
    {"global_rank", "3", "parallel.global_rank", "3", "-1", "out-of-range"},
    {"gradients_mean", "true", "parallel.gradients_mean", "true", "1", "wrong-type"},
    {"gradient_fp32_sync", "False", "parallel.gradient_fp32_sync", "false", "x", "wrong-type"},
    {"loss_repeated_mean", "false", "parallel.loss_repeated_mean", "false", "x", "wrong-type"},
    {"parallel_mode", "semi_auto_parallel", "parallel.parallel_mode", "semi_auto_parallel",
     "fully_auto", "bad-word"},
    {"search_mode", "sharding_propagation", "parallel.search_mode", "sharding_propagation",
     "random", "bad-word"},
    {"auto_parallel_search_mode", "dynamic_programming", "parallel.search_mode",
     "dynamic_programming", "random", "bad-word"},
    {"parameter_broadcast", "true", "parallel.parameter_broadcast", "true", "2", "wrong-type"},
    {"strategy_ckpt_load_file", "a.json", "parallel.strategy_ckpt_config.load_file", "a.json",
     "[a]", "wrong-type"},
    {"strategy_ckpt_save_file", "a.json", "parallel.strategy_ckpt_config.save_file", "a.json",
     "[a]", "wrong-type"},
    {"strategy_ckpt_config", "{save_file: b}", "parallel.strategy_ckpt_config.save_file", "b",
     "[a]", "wrong-type"},
    {"strategy_ckpt_config.load_file", "a.json", "parallel.strategy_ckpt_config.load_file",
     "a.json", "[a]", "wrong-type"},
    {"strategy_ckpt_config.save_file", "a.json", "parallel.strategy_ckpt_config.save_file",
     "a.json", "[a]", "wrong-type"},
    {"strategy_ckpt_config.only_trainable_params", "false",
     "parallel.strategy_ckpt_config.only_trainable_params", "false", "x", "wrong-type"},
    {"full_batch", "true", "parallel.dataset_strategy", "full_batch", "x", "wrong-type"},
    {"dataset_strategy", "[[4, 1], [4, 1]]", "parallel.dataset_strategy", "[[4, 1], [4, 1]]",
     "half_batch", "bad-word"},
    {"enable_parallel_optimizer", "true", "parallel.parallel_optimizer.enable", "true", "x",
     "wrong-type"},
    {"enable_alltoall", "true", "parallel.enable_alltoall", "true", "x", "wrong-type"},
    {"force_fp32_communication", "true", "parallel.force_fp32_communication", "true", "x",
     "wrong-type"},
    {"all_reduce_fusion_config", "[20, 35]", "parallel.comm_fusion.allreduce.config", "[20, 35]",
     "[35, 20]", "out-of-range"},
    {"pipeline_stages", "2", "parallel.pipeline_stages", "2", "0", "out-of-range"},
    {"pipeline_result_broadcast", "true", "parallel.pipeline.result_broadcast", "true", "x",
     "wrong-type"},
    {"pipeline_config", "{pipeline_scheduler: gpipe}", "parallel.pipeline.scheduler", "gpipe",
     "[gpipe]", "wrong-type"},
    {"pipeline_config.pipeline_interleave", "true", "parallel.pipeline.interleave", "true", "x",
     "wrong-type"},
    {"pipeline_config.pipeline_scheduler", "gpipe", "parallel.pipeline.scheduler", "gpipe", "2f2b",
     "bad-word"},
    {"parallel_optimizer_config", "{parallel_optimizer_threshold: 32}",
     "parallel.parallel_optimizer.threshold", "32", "64", "wrong-type"},
    {"parallel_optimizer_config.gradient_accumulation_shard", "false",
     "parallel.parallel_optimizer.gradient_accumulation_shard", "false", "x", "wrong-type"},
    {"parallel_optimizer_config.parallel_optimizer_threshold", "0",
     "parallel.parallel_optimizer.threshold", "0", "-1", "out-of-range"},
    {"parallel_optimizer_config.optimizer_weight_shard_size", "4",
     "parallel.parallel_optimizer.weight_shard_size", "4", "-2", "out-of-range"},
    {"parallel_optimizer_config.optimizer_level", "level3",
     "parallel.parallel_optimizer.optimizer_level", "level3", "level4", "bad-word"},
    {"comm_fusion", "{openstate: false}", "parallel.comm_fusion.openstate", "false", "64",
     "wrong-type"},
    {"comm_fusion.openstate", "false", "parallel.comm_fusion.openstate", "false", "x",
     "wrong-type"},
    {"comm_fusion.allreduce", "{mode: size, config: 32}", "parallel.comm_fusion.allreduce.config",
     "32", "auto", "wrong-type"},
    {"comm_fusion.allreduce.mode", "auto", "parallel.comm_fusion.allreduce.mode", "auto", "all",
     "bad-word"},
    {"comm_fusion.allreduce.config", "[3, 7]", "parallel.comm_fusion.allreduce.config", "[3, 7]",
     "0", "out-of-range"},
    {"comm_fusion.allgather", "{mode: auto, config: null}", "parallel.comm_fusion.allgather.mode",
     "auto", "[auto]", "wrong-type"},
    {"comm_fusion.allgather.mode", "size", "parallel.comm_fusion.allgather.mode", "size", "all",
     "bad-word"},
    {"comm_fusion.allgather.config", "16", "parallel.comm_fusion.allgather.config", "16", "x",
     "wrong-type"},
    {"comm_fusion.reducescatter", "{mode: auto, config: null}",
     "parallel.comm_fusion.reducescatter.mode", "auto", "[auto]", "wrong-type"},
    {"comm_fusion.reducescatter.mode", "size", "parallel.comm_fusion.reducescatter.mode", "size",
     "all", "bad-word"},
    {"comm_fusion.reducescatter.config", "16", "parallel.comm_fusion.reducescatter.config", "16",
     "-5", "out-of-range"},
    {"group_ckpt_save_file", "groups.pb", "parallel.group_ckpt_save_file", "groups.pb", "[g]",
     "wrong-type"},
};

/// TransformerOpParallelConfig: 9 keys, and the 4 of its recompute config; MoEConfig: 8 keys.
inline constexpr UpstreamCase mindformers_cases[] = {
    {"data_parallel", "2", "parallel.data_parallel", "2", "0", "out-of-range"},
    {"model_parallel", "2", "parallel.tensor_parallel", "2", "0", "out-of-range"},
    {"expert_parallel", "2", "parallel.expert_parallel", "2", "0", "out-of-range"},
    {"pipeline_stage", "2", "parallel.pipeline_stages", "2", "0", "out-of-range"},
    {"micro_batch_num", "4", "train.micro_batch_num", "4", "0", "out-of-range"},
    {"recompute", "true", "recompute.enable", "true", "5", "wrong-type"},
    {"recompute.recompute", "true", "recompute.enable", "true", "5", "wrong-type"},
    {"recompute.parallel_optimizer_comm_recompute", "true",
     "recompute.parallel_optimizer_comm_recompute", "true", "5", "wrong-type"},
    {"recompute.mp_comm_recompute", "false", "recompute.mp_comm_recompute", "false", "5",
     "wrong-type"},
    {"recompute.recompute_slice_activation", "true", "recompute.slice_activation", "true", "5",
     "wrong-type"},
    {"optimizer_shard", "true", "parallel.parallel_optimizer.enable", "true", "5", "wrong-type"},
    {"gradient_aggregation_group", "2", "parallel.gradient_aggregation_group", "2", "0",
     "out-of-range"},
    {"vocab_emb_dp", "false", "parallel.vocab_emb_dp", "false", "5", "wrong-type"},
    {"expert_num", "8", "moe.num_experts", "8", "0", "out-of-range", "moe"},
    {"capacity_factor", "1.5", "moe.capacity_factor", "1.5", "0.9", "out-of-range", "moe"},
    {"aux_loss_factor", "0.01", "moe.aux_loss_factor", "0.01", "0.0", "out-of-range", "moe"},
    {"num_experts_chosen", "2", "moe.router_topk", "2", "0", "out-of-range", "moe"},
    {"expert_group_size", "64", "moe.expert_group_size", "64", "0", "out-of-range", "moe"},
    {"group_wise_a2a", "true", "moe.group_wise_a2a", "true", "5", "wrong-type", "moe"},
    {"comp_comm_parallel", "true", "moe.comp_comm_parallel", "true", "5", "wrong-type", "moe"},
    {"comp_comm_parallel_degree", "4", "moe.comp_comm_parallel_degree", "4", "0", "out-of-range",
     "moe"},
};

}  // namespace trainctl::test
