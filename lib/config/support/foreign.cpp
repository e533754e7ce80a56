// Keys of a whole MindFormers file that have no counterpart: of its runner, its data and its model.

#include <algorithm>
#include <string>
#include <vector>

#include "config/schema/values.h"
#include "config/support/standing.h"
#include "config/yaml/numbers.h"

namespace trainctl {
namespace {

using Answer = ForeignKey::Answer;

constexpr ForeignKey foreign_rows[] = {
    // Later versions of MindSpore.
    {"parallel", "optimizer_level", Answer::not_built, "",
     "parallel.parallel_optimizer.optimizer_level"},
    {"parallel", "optimizer_weight_shard_aggregated_save", Answer::not_built, "false", ""},
    {"parallel", "auto_pipeline", Answer::not_built, "false", "parallel.pipeline_stages"},
    {"parallel", "pipeline_segments", Answer::not_built, "1", ""},
    {"parallel", "grad_accumulation_step", Answer::not_built, "1", "train.micro_batch_num"},
    {"parallel", "communi_parallel_mode", Answer::not_built, "all_group_parallel", ""},
    {"parallel", "dump_local_norm", Answer::not_built, "false", ""},
    {"parallel", "dump_local_norm_path", Answer::not_built, "", ""},
    {"parallel", "dump_device_local_norm", Answer::not_built, "false", ""},
    {"parallel", "sharding_propagation", Answer::not_built, "false",
     "parallel.search_mode: sharding_propagation"},
    {"parallel", "auto_parallel_new_interface", Answer::not_built, "false", ""},
    // Later versions of MindFormers.
    {"parallel", "seq_split_num", Answer::not_built, "1", "parallel.context_parallel"},
    {"parallel", "mem_coeff", Answer::not_built, "0.1|0.25", ""},
    {"parallel", "ulysses_degree_in_cp", Answer::not_built, "1",
     "parallel.hierarchical_context_parallel_sizes"},
    {"parallel", "micro_batch_interleave_num", Answer::not_built, "1", "train.micro_batch_num"},
    {"parallel", "ep_extend_tp", Answer::not_built, "false", "parallel.expert_tensor_parallel"},
    {"recompute", "select_recompute", Answer::not_built, "false", "recompute.select"},
    {"recompute", "select_comm_recompute", Answer::not_built, "false",
     "recompute.mp_comm_recompute"},
    {"recompute", "select_recompute_exclude", Answer::not_built, "false", "recompute.layers"},
    {"recompute", "select_comm_recompute_exclude", Answer::not_built, "false", ""},
    // Megatron's TransformerConfig.
    {"parallel", "recompute_granularity", Answer::not_built, "",
     "recompute.select: full, or attention for selective"},
    {"parallel", "recompute_modules", Answer::not_built, "",
     "recompute.select: attention for core_attn, norms for layernorm, mlp+activations for mlp"},
    {"parallel", "recompute_method", Answer::not_built, "", "recompute.layers"},
    {"parallel", "recompute_num_layers", Answer::not_built, "", "recompute.layers_per_stage"},
    {"parallel", "distribute_saved_activations", Answer::not_built, "false",
     "recompute.slice_activation"},
    {"moe", "enable_sdrop", Answer::not_built, "false", ""},
    {"moe", "use_fused_ops_topkrouter", Answer::not_built, "false", ""},
    {"moe", "use_fused_ops_permute", Answer::not_built, "false", ""},
    {"moe", "router_dense_type", Answer::not_built, "float32", ""},
    {"moe", "shared_expert_num", Answer::not_built, "0", "moe.shared_expert_intermediate_size"},
    {"moe", "use_shared_expert_gating", Answer::not_built, "false", "moe.shared_expert_gate"},
    {"moe", "norm_topk_prob", Answer::not_built, "true", ""},
    {"moe", "routing_policy", Answer::not_built, "TopkRouterV1", ""},
    {"moe", "enable_cold_hot_expert", Answer::not_built, "false", ""},
    {"moe", "hot_expert_num", Answer::not_built, "0", ""},
    {"moe", "cold_token_percent", Answer::not_built, "1.0|1", ""},
    {"moe", "moe_module_name", Answer::not_built, "", ""},
    {"moe", "topk_method", Answer::not_built, "", ""},
    {"moe", "topk_group", Answer::not_built, "", "moe.router_group_topk"},
    {"moe", "n_group", Answer::not_built, "", "moe.router_num_groups"},
    {"moe", "first_k_dense_replace", Answer::not_built, "false|0", "moe.first_dense_layers"},
    {"moe", "moe_intermediate_size", Answer::not_built, "", "moe.ffn_hidden_size"},
    {"moe", "routed_scaling_factor", Answer::not_built, "1.0|1", "moe.router_topk_scaling_factor"},
    {"moe", "aux_loss_types", Answer::not_built, "", "moe.aux_loss_factor"},
    {"moe", "aux_loss_factors", Answer::not_built, "", "moe.aux_loss_factor"},
    {"moe", "max_router_load", Answer::not_built, "", ""},
    {"moe", "balance_via_topk_bias", Answer::not_built, "false", "moe.router_enable_expert_bias"},
    {"moe", "topk_bias_update_rate", Answer::not_built, "0.0|0", "moe.router_bias_update_rate"},
    {"moe", "use_gating_sigmoid", Answer::not_built, "false", "moe.router_score_function"},
    {"moe", "group_size", Answer::not_built, "", ""},
    {"moe", "use_gmm", Answer::not_built, "false", ""},
    {"moe", "enable_deredundency", Answer::not_built, "false", ""},
    {"moe", "npu_nums_per_device", Answer::not_built, "", ""},
    {"moe", "callback_moe_droprate", Answer::not_built, "false", ""},
    {"moe", "save_token_distribution", Answer::not_built, "false", ""},
};

/// Whether a word means the same in quotes, unlike "false" and "1".
bool is_name(const std::string& text) {
  double number = 0;
  const std::string word = lower_case(text);
  return word != "true" && word != "false" && parse_number(text, number).has_value();
}

}  // namespace

std::span<const ForeignKey> foreign_keys() { return foreign_rows; }

const ForeignKey* find_foreign(std::string_view section, std::string_view key) {
  for (const auto& rows : {foreign_keys(), foreign_mindformers_keys()}) {
    for (const ForeignKey& row : rows) {
      if (row.section == section && row.key == key) return &row;
    }
  }
  return nullptr;
}

bool asks_nothing(const ForeignKey& foreign, const YamlNode& value) {
  switch (value.kind) {
    case YamlNode::Kind::null: return true;
    case YamlNode::Kind::map: return value.entries.empty();
    case YamlNode::Kind::sequence: return value.items.empty();
    case YamlNode::Kind::scalar: break;
  }
  if (value.scalar.empty()) return true;
  if (value.quoted && !is_name(value.scalar)) return false;
  const std::vector<std::string> plain = split_words(foreign.plain);
  double number = 0;
  double other = 0;
  const bool is_number = !value.quoted && !parse_number(value.scalar, number);
  return std::any_of(plain.begin(), plain.end(), [&](const std::string& word) {
    return word == lower_case(value.scalar) || word == value.scalar ||
           (is_number && !parse_number(word, other) && number == other);
  });
}

std::string help_of(const ForeignKey& foreign) {
  if (foreign.instead.empty()) return "remove it";
  return (foreign.instead.starts_with("use ") ? "" : "write ") + std::string(foreign.instead);
}

namespace {

constexpr auto changes = ForeignKey::Answer::changes;
constexpr auto idle = ForeignKey::Answer::idle;

constexpr std::string_view own_kernel = "there is one kernel";
constexpr std::string_view generates = "it is for generating: see trainctl generate";
constexpr std::string_view in_fp32 = "sums, norms and softmax are computed in fp32";
constexpr std::string_view loading = "it is about loading a checkpoint";
constexpr std::string_view profiles = "log.trace writes a timeline";
constexpr std::string_view needs_lr_scale = "it needs lr_scale, which is not built";
constexpr std::string_view samples = "a row of the data has tokens and their labels";

constexpr ForeignKey file_rows[] = {
    // Top level.
    {"", "run_mode", changes, "train|finetune", "use trainctl generate or trainctl evaluate"},
    {"", "load_checkpoint", changes, "", "model.from"},
    {"", "pretrained_model_dir", changes, "",
     "use model.from, which starts from the weights there, or the sizes of the model"},
    {"", "src_strategy_path_or_dir", changes, "", "parallel.strategy_ckpt_config.load_file"},
    {"", "resume_training", changes, "false", "use the same command again: it resumes"},
    {"", "ignore_data_skip", changes, "false", "use model.from to start again from weights"},
    {"", "data_skip_steps", changes, "0", ""},
    {"", "only_save_strategy", changes, "false", "use trainctl plan"},
    {"", "micro_batch_interleave_num", changes, "1", "train.micro_batch_num"},
    {"", "lr_scale", changes, "false", "lr_schedule.max_lr"},
    {"", "layer_scale", changes, "false", ""},
    {"", "auto_tune", changes, "false", ""},
    {"", "trainer", idle, "", "the section model says what is trained"},
    {"", "load_ckpt_format", idle, "", loading},
    {"", "auto_trans_ckpt", idle, "false", loading},
    {"", "transform_process_num", idle, "1", loading},
    {"", "load_ckpt_async", idle, "false", loading},
    {"", "remove_redundancy", idle, "false", loading},
    {"", "balanced_load", idle, "false", loading},
    {"", "use_legacy", idle, "false", "there is one form of the model"},
    {"", "do_eval", idle, "false", "data.validation says it"},
    {"", "eval_step_interval", idle, "-1|0", "see train.validate_every"},
    {"", "eval_epoch_interval", idle, "-1|0", "see train.validate_every"},
    {"", "layer_decay", idle, "", "it needs layer_scale, which is not built"},
    {"", "lr_scale_factor", idle, "", needs_lr_scale},
    {"", "filepath_prefix", idle, "", "it needs auto_tune, which is not built"},
    {"", "autotune_per_step", idle, "", "it needs auto_tune, which is not built"},
    {"", "remote_save_url", idle, "", "output.dir has the files"},
    {"", "print_separate_loss", idle, "", "metrics.jsonl has the losses of routers"},
    {"", "profile", idle, "false", profiles},
    {"", "profile_start_step", idle, "", profiles},
    {"", "profile_stop_step", idle, "", profiles},
    {"", "profile_memory", idle, "", profiles},
    {"", "profile_communication", idle, "", profiles},
    {"", "profile_level", idle, "", profiles},
    {"", "profiler_level", idle, "", profiles},
    {"", "profile_rank_ids", idle, "", profiles},
    {"", "profile_pipeline", idle, "", profiles},
    {"", "profile_output", idle, "", profiles},
    {"", "profile_on", idle, "", profiles},
    {"", "with_stack", idle, "", profiles},
    {"", "mstx", idle, "", profiles},
    {"", "init_start_profile", idle, "", profiles},
    {"", "context", idle, "", "it configures MindSpore's devices"},
    {"", "swap_config", changes, "", "offload.enable"},
    {"", "processor", idle, "", "data.tokenizer makes tokens from text"},
    {"", "metric", idle, "", "the validation loss is in metrics.jsonl"},
    {"", "callbacks", idle, "", "see the sections log, output and checkpoint"},
    {"", "eval_callbacks", idle, "", "see the sections log, output and checkpoint"},
    {"", "monitor_config", idle, "", "see the sections log and hooks"},
    {"", "train_dataset_task", idle, "", "train_dataset says it"},
    {"", "eval_dataset_task", idle, "", "eval_dataset says it"},
    {"", "runner_config", changes, "", "train.steps and train.global_batch_size"},
    {"", "runner_wrapper", changes, "", "optimizer.clip_grad_norm"},
    {"", "train_dataset", changes, "", "data.train"},
    {"", "eval_dataset", changes, "", "data.validation.path"},
    {"model", "model_config", changes, "", "the sizes in the section model"},
    {"model", "arch", idle, "", "model.family says it"},
    // Runner.
    {"runner_config", "sink_mode", idle, "", "every step returns to the host"},
    {"runner_config", "sink_size", idle, "", "every step returns to the host"},
    {"runner_config", "num_classes", idle, "", "the model has no classes"},
    {"runner_config", "initial_epoch", changes, "0", "use the same command again: it resumes"},
    {"runner_config", "initial_step", changes, "0", "use the same command again: it resumes"},
    {"runner_config", "has_trained_epoches", changes, "0", ""},
    {"runner_config", "has_trained_steps", changes, "0", ""},
    {"runner_wrapper", "type", idle, "", "there is one kind of training step"},
    {"runner_wrapper", "scale_sense", idle, "",
     "master weights and sums are fp32: see hooks.grad_scale"},
    {"runner_wrapper", "local_norm", idle, "false", "metrics.jsonl has the norm"},
    {"runner_wrapper", "calculate_per_token_loss", idle, "",
     "the loss is the mean over the tokens of the global batch"},
    {"runner_wrapper", "use_skip_data_by_global_norm", changes, "false", ""},
    // Data.
    {"train_dataset", "batch_size", idle, "", "runner_config.batch_size says it"},
    {"train_dataset", "seed", idle, "", "train.seed orders the data"},
    {"train_dataset", "repeat", changes, "1", "train.epochs"},
    {"train_dataset", "drop_remainder", idle, "true", "every step has a whole batch"},
    {"train_dataset", "input_columns", idle, "", samples},
    {"train_dataset", "output_columns", idle, "", samples},
    {"train_dataset", "construct_args_key", idle, "", samples},
    {"train_dataset", "dynamic_batch", changes, "false", ""},
    {"train_dataset", "num_parallel_workers", idle, "", "see data.prefetch"},
    {"train_dataset", "python_multiprocessing", idle, "", "see data.prefetch"},
    {"train_dataset", "numa_enable", idle, "", "see data.prefetch"},
    {"train_dataset", "autotune_per_step", idle, "", "see data.prefetch"},
    {"train_dataset", "profile", idle, "", profiles},
    {"train_dataset.data_loader", "type", idle, "", "data.train takes text and token files"},
    {"train_dataset.data_loader", "datasets_type", idle, "GPTDataset", "see data.train"},
    {"train_dataset.data_loader", "use_broadcast_data", idle, "", "each rank reads its part"},
    {"train_dataset.data_loader", "create_attention_mask", idle, "", "there is no stored mask"},
    {"train_dataset.data_loader", "create_compressed_eod_mask", idle, "",
     "there is no stored mask"},
    {"train_dataset.data_loader", "compressed_eod_mask_length", idle, "",
     "there is no stored mask"},
    {"train_dataset.data_loader", "path", changes, "", "use data.train with a file or folder"},
    {"train_dataset.data_loader", "load_func", changes, "", "use data.train with a file or folder"},
    {"train_dataset.data_loader", "split", changes, "train", "data.validation.fraction"},
    {"train_dataset.data_loader", "handler", changes, "", "use trainctl data build"},
    {"train_dataset.data_loader", "packing", changes, "", "data.packing"},
    {"train_dataset.data_loader", "num_samples", changes, "", ""},
    {"train_dataset.data_loader.config", "seed", idle, "", "train.seed orders the data"},
    {"train_dataset.data_loader.config", "seq_length", idle, "", "model.seq_length says it"},
    {"train_dataset.data_loader.config", "create_attention_mask", idle, "",
     "there is no stored mask"},
    {"train_dataset.data_loader.config", "create_compressed_eod_mask", idle, "",
     "there is no stored mask"},
    {"train_dataset.data_loader.config", "eod_pad_length", idle, "", "there is no stored mask"},
    {"train_dataset.data_loader.config", "pad", idle, "", "sequences are cut without padding"},
    {"train_dataset.data_loader.config", "mmap_bin_files", idle, "", "files are mapped"},
    // Validation data: only the path has an effect.
    {"eval_dataset", "*", idle, "", "data.validation takes text and token files"},
    // Model.
    {"model.model_config", "batch_size", idle, "", "runner_config.batch_size says it"},
    {"model.model_config", "auto_register", idle, "", "the section model says what is trained"},
    {"model.model_config", "bos_token_id", idle, "", "see data.eod_token"},
    {"model.model_config", "eos_token_id", idle, "", "see data.eod_token"},
    {"model.model_config", "pad_token_id", idle, "", "sequences are cut without padding"},
    {"model.model_config", "ignore_token_id", idle, "", "sequences are cut without padding"},
    {"model.model_config", "use_cache", idle, "", generates},
    {"model.model_config", "use_past", idle, "false", generates},
    {"model.model_config", "use_past_shard", idle, "false", generates},
    {"model.model_config", "is_dynamic", idle, "", generates},
    {"model.model_config", "block_size", idle, "", generates},
    {"model.model_config", "num_blocks", idle, "", generates},
    {"model.model_config", "max_decode_length", idle, "", generates},
    {"model.model_config", "max_length", idle, "", generates},
    {"model.model_config", "max_new_tokens", idle, "", generates},
    {"model.model_config", "min_new_tokens", idle, "", generates},
    {"model.model_config", "repetition_penalty", idle, "", generates},
    {"model.model_config", "temperature", idle, "", generates},
    {"model.model_config", "top_k", idle, "", generates},
    {"model.model_config", "top_p", idle, "", generates},
    {"model.model_config", "do_sample", idle, "", generates},
    {"model.model_config", "num_beams", idle, "", generates},
    {"model.model_config", "use_flash_attention", idle, "", "attention never stores its scores"},
    {"model.model_config", "use_ring_attention", idle, "false", "see parallel.cp_comm_type"},
    {"model.model_config", "use_attn_mask_compression", idle, "", "there is no stored mask"},
    {"model.model_config", "use_eod_attn_mask_compression", changes, "false",
     "data.reset_attention_mask"},
    {"model.model_config", "use_eod_reset", changes, "false", "data.reset_attention_mask"},
    {"model.model_config", "input_sliced_sig", idle, "", samples},
    {"model.model_config", "fine_grain_interleave", idle, "1", "see parallel.tp_comm_overlap"},
    {"model.model_config", "parallel_optimizer", idle, "", "see parallel.parallel_optimizer"},
    {"model.model_config", "qkv_concat", idle, "", own_kernel},
    {"model.model_config", "compute_in_2d", idle, "", own_kernel},
    {"model.model_config", "rmsnorm_compute_2d", idle, "", own_kernel},
    {"model.model_config", "is_flexible_shape", idle, "", own_kernel},
    {"model.model_config", "use_contiguous_weight_layout_attention", idle, "", own_kernel},
    {"model.model_config", "use_interleaved_weight_layout_mlp", idle, "", own_kernel},
    {"model.model_config", "use_fused_swiglu", idle, "", own_kernel},
    {"model.model_config", "use_fused_rope", idle, "", own_kernel},
    {"model.model_config", "apply_rope_fusion", idle, "", own_kernel},
    {"model.model_config", "bias_swiglu_fusion", idle, "", own_kernel},
    {"model.model_config", "bias_dropout_fusion", idle, "", own_kernel},
    {"model.model_config", "moe_grouped_gemm", idle, "", own_kernel},
    {"model.model_config", "moe_permute_fusion", idle, "", own_kernel},
    {"model.model_config", "moe_token_dispatcher_type", idle, "", "see moe.group_wise_a2a"},
    {"model.model_config", "print_separate_loss", idle, "",
     "metrics.jsonl has the losses of routers"},
    {"model.model_config", "fp32_residual_connection", idle, "", in_fp32},
    {"model.model_config", "layernorm_compute_dtype", idle, "float32", in_fp32},
    {"model.model_config", "layernorm_compute_type", idle, "float32", in_fp32},
    {"model.model_config", "softmax_compute_dtype", idle, "float32", in_fp32},
    {"model.model_config", "softmax_compute_type", idle, "float32", in_fp32},
    {"model.model_config", "rotary_dtype", idle, "float32", in_fp32},
    {"model.model_config", "attention_softmax_in_fp32", idle, "true", in_fp32},
    {"model.model_config", "res_dtype", idle, "", in_fp32},
    {"model.model_config", "residual_dtype", idle, "", in_fp32},
    {"model.model_config", "embedding_init_type", idle, "float32", "weights are kept in fp32"},
    {"model.model_config", "param_init_type", idle, "float32", "weights are kept in fp32"},
    {"model.model_config", "param_init_dtype", idle, "float32", "weights are kept in fp32"},
    {"model.model_config", "params_dtype", idle, "float32", "weights are kept in fp32"},
    {"model.model_config", "router_dense_type", changes, "float32", "use float32: routers have it"},
    {"model.model_config", "moe_router_dtype", changes, "float32|fp32",
     "use float32: routers have it"},
    {"model.model_config", "multiple_of", idle, "", "intermediate_size says it"},
    {"model.model_config", "rotary_emb_base", idle, "", "theta says it"},
    {"model.model_config", "pretrain_seqlen", idle, "", "see model.max_position_embeddings"},
    {"model.model_config", "rope_scaling", changes, "", "model.rope_scaling"},
    {"model.model_config", "checkpoint_name_or_path", changes, "", "model.from"},
    {"model.model_config", "attn_proj_has_bias", changes, "false", "model.add_bias_linear"},
    {"model.model_config", "out_proj_has_bias", changes, "false", "model.add_bias_linear"},
    {"model.model_config", "mlp_has_bias", changes, "false", "model.add_bias_linear"},
    {"model.model_config", "mlp_bias", changes, "false", "model.add_bias_linear"},
    {"model.model_config", "sliding_window", changes, "", "model.sliding_window"},
    {"model.model_config", "window_size", changes, "", "model.sliding_window"},
    {"model.model_config", "use_sliding_window", changes, "false", "model.sliding_window"},
    {"model.model_config", "max_window_layers", idle, "", "it needs use_sliding_window"},
    {"model.model_config", "use_alibi_mask", changes, "false", ""},
    // In training, MindFormers' attention uses none of these: it sees all keys up to the query's.
    {"model.model_config", "attention_pre_tokens", changes, "2147483647", "model.sliding_window"},
    {"model.model_config", "attention_next_tokens", changes, "0", ""},
    {"model.model_config", "sparse_mode", changes, "0|2|3", "model.sliding_window"},
    {"model.model_config", "softmax_scale", changes, "", ""},
    {"model.model_config", "apply_query_key_layer_scaling", idle, "false", in_fp32},
    {"model.model_config", "apply_residual_connection_post_layernorm", changes, "false", ""},
    {"model.model_config", "layernorm_zero_centered_gamma", changes, "false", ""},
    {"model.model_config", "scale_emb", changes, "1", ""},
    {"model.model_config", "emb_scale", changes, "1", ""},
    {"model.model_config", "multi_latent_attention", changes, "false", ""},
    {"model.model_config", "kv_lora_rank", changes, "", ""},
    {"model.model_config", "q_lora_rank", changes, "", ""},
    {"model.model_config", "qk_rope_head_dim", changes, "", ""},
    {"model.model_config", "qk_nope_head_dim", changes, "", ""},
    {"model.model_config", "v_head_dim", changes, "", ""},
    {"model.model_config", "num_nextn_predict_layers", changes, "0", ""},
    {"model.model_config", "mtp_depth", changes, "0", ""},
    {"model.model_config", "mtp_num_layers", changes, "0", ""},
    {"model.model_config", "mtp_loss_scaling_factor", idle, "", "it needs mtp_num_layers"},
    {"model.model_config", "mtp_loss_factor", idle, "", "it needs mtp_num_layers"},
    {"model.model_config", "quant_config", changes, "", ""},
    {"model.model_config", "pet_config", changes, "", ""},
    {"model.model_config", "rl_config", changes, "", ""},
    {"model.model_config", "moe_config", changes, "", "the section moe"},
    {"model.model_config", "parallel_config", idle, "", "the section parallel says it"},
    {"model.model_config", "moe_input_jitter_eps", changes, "", ""},
    {"model.model_config", "moe_apply_probs_on_input", changes, "false", ""},
    {"model.model_config", "moe_shared_expert_overlap", idle, "", own_kernel},
    {"model.model_config", "topk_method", changes, "greedy|noaux_tc", ""},
};

}  // namespace

std::span<const ForeignKey> foreign_mindformers_keys() { return file_rows; }

}  // namespace trainctl
