// The sections about the model: sizes, forms and regularisation, experts, recomputation, offloading
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

struct RopeScalingConfig {       // RoPE for contexts longer than the original
  std::optional<RopeType> type;  // default: llama3 where factor is above 1, else none
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
  std::optional<double> attention_factor;  // factor of cos and sin; default: the type's formula
  double beta_fast = 32.0;                 // this and the next five keys are only for yarn
  double beta_slow = 1.0;
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  bool truncate = true;
  double alpha = 1.0;
  std::optional<NumberList> short_factor, long_factor;  // longrope: a factor for each pair
  bool operator==(const RopeScalingConfig&) const = default;
};

/// Scales queries by their position: after RoPE and q/k norms, a query at position p of its
/// document is multiplied by 1 + beta ln(1 + floor((p + add) / floor)).
struct TemperatureConfig {
  double beta = 0.0;  // no scaling if 0
  double floor = 8192.0;
  double add = 0.0;
  bool operator==(const TemperatureConfig&) const = default;
};

constexpr std::int64_t max_kinds = 64;  // most entries of model.layers

/// A kind of layers in `model.layers`, with its own settings. Unset keys have the model's values.
struct LayerEntry {
  std::string name{};      // letters, digits and _
  std::int64_t count = 1;  // number of successive layers of this kind; 1 with a pattern
  std::optional<std::int64_t> ffn_hidden_size{};
  std::optional<std::int64_t> num_query_groups{};
  std::optional<bool> experts{};  // default: by moe.first_dense_layers and moe.layer_frequency
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
  std::optional<std::string> preset;  // supplies every key below that is not given
  // directory of a model to start from: supplies keys like `preset`, and initial weights
  std::optional<std::string> from;
  Family family = "gpt2";
  std::int64_t num_layers = 0;  // required unless preset or from gives it; so are the next four
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t seq_length = 0;
  std::int64_t vocab_size = 0;
  std::vector<LayerEntry> layers;            // kinds of layers; if empty, all layers are alike
  std::optional<std::string> layer_pattern;  // names of kinds in the order of the layers
  // default: 4 x hidden_size (gpt2), 8/3 x hidden_size rounded up to a multiple of 256 (llama)
  std::optional<std::int64_t> ffn_hidden_size;
  std::optional<std::int64_t> num_query_groups;         // KV heads; default: num_attention_heads
  std::optional<std::int64_t> kv_channels;              // head size; default: hidden / heads
  std::optional<std::int64_t> max_position_embeddings;  // default: seq_length
  std::optional<bool> tie_word_embeddings;              // default: true for gpt2, false for llama
  std::optional<bool> add_bias_linear;                  // default: true for gpt2, false for llama
  std::optional<bool> add_qkv_bias;                     // default: add_bias_linear
  bool qk_layernorm = false;  // RMSNorm of each head's q and k, before RoPE (llama)
  double norm_epsilon = 1e-5;
  std::optional<bool> use_rope;  // default: true for llama, false for gpt2
  double rotary_base = 10000.0;
  double rotary_percent = 1.0;  // rotated share of each head, from its first feature on
  bool rotary_interleaved = false;
  RopeScalingConfig rope_scaling;
  std::optional<double> softmax_scale;               // default: 1 / sqrt(kv_channels)
  std::optional<std::int64_t> sliding_window;        // keys that a query sees, including its own
  std::optional<std::int64_t> attention_chunk_size;  // tokens per chunk; a query sees its chunk
  std::optional<double> attn_logit_softcapping;      // cap of attention scores
  TemperatureConfig attention_temperature;
  SoftmaxType softmax_type = "vanilla";
  bool attention_output_gate = false;
  std::optional<double> final_logit_softcapping;   // cap of the output logits
  std::optional<bool> add_out_bias, add_mlp_bias;  // default: add_bias_linear
  std::optional<Activation> activation;            // default: gelu (gpt2), silu (llama)
  std::optional<bool> gated_linear_unit;           // default: false (gpt2), true (llama)
  double glu_linear_offset = 0.0;
  std::optional<double> activation_func_clamp_value;  // limit of both factors of a gated unit
  NormPlacement norm_placement = NormPlacement::pre;
  QkNormForm qk_layernorm_form = QkNormForm::head;
  std::optional<bool> qk_layernorm_after_rope;  // default: true for l2
  bool zero_centered_norm = false;              // norms multiply by (1 + weight) and not by weight
  double embedding_multiplier = 1.0;
  double residual_multiplier = 1.0;
  double logit_scale = 1.0;
  double hidden_dropout = 0.0;
  double attention_dropout = 0.0;
  double embedding_dropout = 0.0;
  double init_method_std = 0.02;
  std::int64_t make_vocab_size_divisible_by = 128;
  bool perform_initialization = true;
  bool use_cpu_initialization = false;  // no effect: initial weights are equal on all devices
  bool use_te_rng_tracker = false;      // no effect: random numbers depend on global indices only
  bool cross_entropy_loss_fusion = true;
  EntropyFusion cross_entropy_fusion_impl = "native";
  bool operator==(const ModelConfig&) const = default;
};

// The sections for experts, recomputation, offloading and hooks.

struct MoeConfig {
  std::int64_t num_experts = 1;  // a plain MLP if 1
  std::int64_t router_topk = 1;  // experts chosen for each token
  ExpertChoice router_choice = "topk";
  std::int64_t first_dense_layers = 0;  // layers with a plain MLP at the start of the model
  std::int64_t layer_frequency = 1;     // every n-th of the further layers has experts
  ScoreFunction router_score_function = "softmax";
  std::optional<bool> router_pre_softmax;       // default: true if router_topk is 1
  std::optional<ExpertWeights> router_weights;  // default: from router_pre_softmax
  double router_topk_scaling_factor = 1;        // multiplies the weights of the chosen experts
  std::int64_t router_num_groups = 1;           // groups of experts; a token uses router_group_topk
  std::int64_t router_group_topk = 1;
  bool router_enable_expert_bias = false;  // add a bias to the scores for the choice
  double router_bias_update_rate = 1e-3;   // change of the bias in each step
  LoadBalancing router_load_balancing_type = "aux_loss";
  BalanceCounts balance_counts = "chosen";
  std::optional<double> capacity_factor;   // no token is dropped if unset
  Overflow overflow = Overflow::position;  // which tokens are dropped
  double aux_loss_factor = 0.05;
  double z_loss_factor = 0;
  ExpertGroup expert_group = "sequence";            // tokens of a routing group
  std::optional<std::int64_t> expert_group_size;    // tokens per group; default: by expert_group
  std::optional<std::int64_t> capacity_group_size;  // tokens per capacity; default: routing group
  std::optional<std::int64_t> ffn_hidden_size;  // for one expert; default: model.ffn_hidden_size
  std::optional<std::int64_t> shared_expert_intermediate_size;  // no shared experts if unset
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
  std::string select = "full";              // layer parts to recompute; "auto": the plan selects
  std::optional<std::string> layers;        // `select` for each layer: "full*2, norms, none*3"
  std::optional<IntList> layers_per_stage;  // number of layers to recompute in each stage
  std::optional<double> memory_limit;       // GiB per rank, for "auto"
  bool parallel_optimizer_comm_recompute = false;
  bool mp_comm_recompute = true;
  bool slice_activation = false;
  std::optional<std::int64_t> num_microbatches_with_partial_activation_checkpoints;
  bool operator==(const RecomputeConfig&) const = default;
};

struct OffloadConfig {  // activations and weights kept in host memory between uses
  bool enable = false;
  std::int64_t num_layers = 0;  // first layers of the model to offload
  bool activations = true;
  bool weights = false;
  bool double_buffering = false;
  std::optional<double> memory_limit;  // GiB per rank on the host, for recompute.select auto
  std::optional<bool> context;         // internal to the upstream library; must not be set
  bool operator==(const OffloadConfig&) const = default;
};

/// Options that are Python callables upstream. engine/hooks.h has their C++ interface.
struct HooksConfig {
  bool timers = false;               // write the time of each phase to metrics.jsonl
  bool finalize_model_grads = true;  // may be false only if no gradient is exchanged
  GradScale grad_scale = "loss_scale";
  NoSync no_sync = "last_microbatch";
  GradSyncStart grad_sync = "overlap";
  ParamSyncStart param_sync = "overlap";
  bool operator==(const HooksConfig&) const = default;
};

}  // namespace trainctl
