#include "config/support/foreign.h"

#include <algorithm>
#include <string>
#include <vector>

#include "config/schema/values.h"
#include "config/yaml/numbers.h"

namespace trainctl {
namespace {

using Answer = ForeignKey::Answer;

constexpr ForeignKey foreign_rows[] = {
    // Later MindSpore.
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
    // Later MindFormers.
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

/// A word that means the same in quotes, which "false" and "1" do not.
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

}  // namespace trainctl
