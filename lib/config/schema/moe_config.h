// The sections for experts, recomputation, offloading and hooks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/schema/choices.h"
#include "config/schema/parallel_config.h"

namespace trainctl {

struct MoeConfig {
  std::int64_t num_experts = 1;  // 1: a plain MLP
  std::int64_t router_topk = 1;  // experts chosen for each token
  ExpertChoice router_choice = ExpertChoice::topk;
  std::int64_t first_dense_layers = 0;  // layers with a plain MLP before the first experts
  std::int64_t layer_frequency = 1;     // of the others every n-th of the model has experts
  ScoreFunction router_score_function = ScoreFunction::softmax;
  std::optional<bool> router_pre_softmax;       // default: with router_topk 1
  std::optional<ExpertWeights> router_weights;  // default: as router_pre_softmax says
  double router_topk_scaling_factor = 1;        // of the weights of the chosen experts
  std::int64_t router_num_groups = 1;           // of experts; a token chooses in router_group_topk
  std::int64_t router_group_topk = 1;
  bool router_enable_expert_bias = false;  // added to the scores in the choice
  double router_bias_update_rate = 1e-3;   // of the bias, in each step
  LoadBalancing router_load_balancing_type = LoadBalancing::aux_loss;
  BalanceCounts balance_counts = BalanceCounts::chosen;
  std::optional<double> capacity_factor;   // unset: no token is dropped
  Overflow overflow = Overflow::position;  // who is dropped
  double aux_loss_factor = 0.05;
  double z_loss_factor = 0;
  ExpertGroup expert_group = ExpertGroup::sequence;  // whose tokens are a routing group
  std::optional<std::int64_t> expert_group_size;     // its tokens; default: those of expert_group
  std::optional<std::int64_t> capacity_group_size;   // that share a capacity; default: such a group
  std::optional<std::int64_t> ffn_hidden_size;  // of one expert; default: model.ffn_hidden_size
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
  GradScale grad_scale = GradScale::loss_scale;
  NoSync no_sync = NoSync::last_microbatch;
  GradSyncStart grad_sync = GradSyncStart::overlap;
  ParamSyncStart param_sync = ParamSyncStart::overlap;
  bool operator==(const HooksConfig&) const = default;
};

}  // namespace trainctl
