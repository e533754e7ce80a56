// The sections about the model: its sizes and regularisation, experts, recomputation, offloading
// and hooks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/choices.h"
#include "config/schema/parallel_config.h"

namespace trainctl {

using NumberList = std::vector<double>;

struct RopeScalingConfig {       // for contexts longer than the original
  std::optional<RopeType> type;  // default: llama3 where factor is above 1, else none
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
  std::optional<double> attention_factor;  // of cos and sin; default: by the type's formula
  double beta_fast = 32.0;                 // this and the next five: yarn
  double beta_slow = 1.0;
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  bool truncate = true;
  double alpha = 1.0;
  std::optional<NumberList> short_factor, long_factor;  // longrope: of each pair
  bool operator==(const RopeScalingConfig&) const = default;
};

/// Queries at position p of their document are multiplied by 1 + beta ln(1 + floor((p + add) /
/// floor)), after RoPE and q/k norms.
struct TemperatureConfig {
  double beta = 0.0;  // 0: they are not
  double floor = 8192.0;
  double add = 0.0;
  bool operator==(const TemperatureConfig&) const = default;
};

constexpr std::int64_t max_kinds = 64;  // entries of model.layers

/// One kind of layers in `model.layers`: the keys that it has of its own. What it leaves out is the
/// model's.
struct LayerEntry {
  std::string name{};      // of letters, digits and _
  std::int64_t count = 1;  // neighbouring layers; 1 with a pattern
  std::optional<std::int64_t> ffn_hidden_size{};
  std::optional<std::int64_t> num_query_groups{};
  std::optional<bool> experts{};  // default: as moe.first_dense_layers and layer_frequency say
  std::optional<bool> qk_layernorm{};
  std::optional<bool> use_rope{};
  std::optional<double> rotary_base{};
  std::optional<RopeScalingConfig> rope_scaling{};
  std::optional<std::int64_t> sliding_window{};
  std::optional<std::int64_t> attention_chunk_size{};
  std::optional<TemperatureConfig> attention_temperature{};
  std::optional<SoftmaxType> softmax_type{};
  bool operator==(const LayerEntry&) const = default;
};

struct ModelConfig {
  std::optional<std::string> preset;  // supplies every field below that is not given
  // directory of a model to start from: like preset, and its weights are read
  std::optional<std::string> from;
  Family family = "gpt2";
  std::int64_t num_layers = 0;  // required unless preset or from gives it, like the next four
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t seq_length = 0;
  std::int64_t vocab_size = 0;
  std::vector<LayerEntry> layers;            // kinds of layers; empty: all are alike
  std::optional<std::string> layer_pattern;  // names of kinds in the order of the layers
  // default: 4 x hidden (gpt2), 8/3 x hidden up to 256s (llama)
  std::optional<std::int64_t> ffn_hidden_size;
  std::optional<std::int64_t> num_query_groups;         // KV heads; default: num_attention_heads
  std::optional<std::int64_t> kv_channels;              // head size; default: hidden / heads
  std::optional<std::int64_t> max_position_embeddings;  // default: seq_length
  std::optional<bool> tie_word_embeddings;              // default: true for gpt2, false for llama
  std::optional<bool> add_bias_linear;                  // default: true for gpt2, false for llama
  std::optional<bool> add_qkv_bias;                     // default: add_bias_linear
  bool qk_layernorm = false;  // RMSNorm on q and k per head, before RoPE (llama)
  double norm_epsilon = 1e-5;
  std::optional<bool> use_rope;  // default: true for llama, false for gpt2
  double rotary_base = 10000.0;
  double rotary_percent = 1.0;  // of each head, from its first feature on
  bool rotary_interleaved = false;
  RopeScalingConfig rope_scaling;
  std::optional<double> softmax_scale;               // default: 1 / sqrt(kv_channels)
  std::optional<std::int64_t> sliding_window;        // keys that a query sees, its own among them
  std::optional<std::int64_t> attention_chunk_size;  // a query sees those of its chunk
  std::optional<double> attn_logit_softcapping;      // of scores
  TemperatureConfig attention_temperature;
  SoftmaxType softmax_type = "vanilla";
  bool attention_output_gate = false;
  std::optional<double> final_logit_softcapping;   // of logits
  std::optional<bool> add_out_bias, add_mlp_bias;  // default: add_bias_linear
  std::optional<Activation> activation;            // default: gelu (gpt2), silu (llama)
  std::optional<bool> gated_linear_unit;           // default: false (gpt2), true (llama)
  double glu_linear_offset = 0.0;
  std::optional<double> activation_func_clamp_value;  // of both factors of a gated unit
  NormPlacement norm_placement = NormPlacement::pre;
  QkNormForm qk_layernorm_form = QkNormForm::head;
  std::optional<bool> qk_layernorm_after_rope;  // default: true for l2
  bool zero_centered_norm = false;              // norms multiply by 1 + weight
  double embedding_multiplier = 1.0;
  double residual_multiplier = 1.0;
  double logit_scale = 1.0;
  double hidden_dropout = 0.0;
  double attention_dropout = 0.0;
  double embedding_dropout = 0.0;
  double init_method_std = 0.02;
  std::int64_t make_vocab_size_divisible_by = 128;
  bool perform_initialization = true;
  bool use_cpu_initialization = false;  // no effect: every device fills the same numbers
  bool use_te_rng_tracker = false;      // no effect: random numbers depend on global indices
  bool cross_entropy_loss_fusion = true;
  EntropyFusion cross_entropy_fusion_impl = "native";
  bool operator==(const ModelConfig&) const = default;
};

// The sections for experts, recomputation, offloading and hooks.

struct MoeConfig {
  std::int64_t num_experts = 1;  // 1: a plain MLP
  std::int64_t router_topk = 1;  // experts chosen for each token
  ExpertChoice router_choice = "topk";
  std::int64_t first_dense_layers = 0;  // layers with a plain MLP before the first experts
  std::int64_t layer_frequency = 1;     // of the others every n-th of the model has experts
  ScoreFunction router_score_function = "softmax";
  std::optional<bool> router_pre_softmax;       // default: with router_topk 1
  std::optional<ExpertWeights> router_weights;  // default: as router_pre_softmax says
  double router_topk_scaling_factor = 1;        // of the weights of the chosen experts
  std::int64_t router_num_groups = 1;           // of experts; a token chooses in router_group_topk
  std::int64_t router_group_topk = 1;
  bool router_enable_expert_bias = false;  // added to the scores in the choice
  double router_bias_update_rate = 1e-3;   // of the bias, in each step
  LoadBalancing router_load_balancing_type = "aux_loss";
  BalanceCounts balance_counts = "chosen";
  std::optional<double> capacity_factor;   // unset: no token is dropped
  Overflow overflow = Overflow::position;  // who is dropped
  double aux_loss_factor = 0.05;
  double z_loss_factor = 0;
  ExpertGroup expert_group = "sequence";            // whose tokens are a routing group
  std::optional<std::int64_t> expert_group_size;    // its tokens; default: those of expert_group
  std::optional<std::int64_t> capacity_group_size;  // that share a capacity; default: such a group
  std::optional<std::int64_t> ffn_hidden_size;      // of one expert; default: model.ffn_hidden_size
  std::optional<std::int64_t> shared_expert_intermediate_size;  // unset: no shared experts
  bool shared_expert_gate = false;
  bool group_wise_a2a = false;
  bool comp_comm_parallel = false;
  std::int64_t comp_comm_parallel_degree = 2;
  bool overlap_expert_parallel_comm = false;
  bool extended_tp = false;  // deprecated
  bool operator==(const MoeConfig&) const = default;
};

struct RecomputeConfig {
  bool enable = false;
  std::string select = "full";              // what of a layer is repeated; "auto": the plan picks
  std::optional<std::string> layers;        // the same for each layer: "full*2, norms, none*3"
  std::optional<IntList> layers_per_stage;  // number of layers to recompute, per stage
  std::optional<double> memory_limit;       // GiB of a rank, for "auto"
  bool parallel_optimizer_comm_recompute = false;
  bool mp_comm_recompute = true;
  bool slice_activation = false;
  std::optional<std::int64_t> num_microbatches_with_partial_activation_checkpoints;
  bool operator==(const RecomputeConfig&) const = default;
};

struct OffloadConfig {  // activations and weights kept in host memory between their uses
  bool enable = false;
  std::int64_t num_layers = 0;  // the first ones of the model
  bool activations = true;
  bool weights = false;
  bool double_buffering = false;
  std::optional<double> memory_limit;  // GiB of a rank on the host, for recompute.select auto
  std::optional<bool> context;         // internal to the upstream library, never given
  bool operator==(const OffloadConfig&) const = default;
};

/// Python callables upstream; in the C++ interface they are in engine/hooks.h.
struct HooksConfig {
  bool timers = false;               // time of each phase, in metrics.jsonl
  bool finalize_model_grads = true;  // false only where no gradient is exchanged
  GradScale grad_scale = "loss_scale";
  NoSync no_sync = "last_microbatch";
  GradSyncStart grad_sync = "overlap";
  ParamSyncStart param_sync = "overlap";
  bool operator==(const HooksConfig&) const = default;
};

}  // namespace trainctl
