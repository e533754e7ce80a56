#include "plan/tables/model.h"

#include "base/round_up.h"

#include <algorithm>
#include <numeric>

namespace trainctl {

namespace {

/// Checks find what is out of range; here it must only not overflow.
std::int64_t bounded(std::int64_t value) {
  return std::clamp<std::int64_t>(value, 0, std::int64_t{1} << 40);
}

/// Also of values that no rule has seen yet.
std::int64_t padded(std::int64_t value, std::int64_t multiple) {
  return multiple < 1 ? value : round_up(bounded(value), bounded(multiple));
}

}  // namespace

ModelShape model_shape(const ModelConfig& config, const MoeConfig& moe) {
  const bool gpt2 = config.family == Family::gpt2;
  ModelShape model;
  model.family = config.family;
  model.norm_kind = gpt2 ? NormKind::layer_norm : NormKind::rms_norm;
  model.position_kind = gpt2 ? PositionKind::learned : PositionKind::rotary;
  model.activation = gpt2 ? Activation::gelu : Activation::silu;
  model.gated_mlp = !gpt2;
  model.layers = config.num_layers;
  model.hidden = config.hidden_size;
  // For a gated MLP 8/3 of the width keeps the three matrices of SwiGLU as large as the two of a 4x
  // MLP.
  model.ffn = config.ffn_hidden_size.value_or(
      gpt2 ? 4 * bounded(model.hidden) : round_up(8 * bounded(model.hidden), 3 * 256) / 3);
  model.heads = config.num_attention_heads;
  model.kv_heads = config.num_query_groups.value_or(model.heads);
  model.head_dim = config.kv_channels.value_or(model.heads > 0 ? model.hidden / model.heads : 0);
  model.seq_length = config.seq_length;
  model.positions = config.max_position_embeddings.value_or(model.seq_length);
  model.vocab = config.vocab_size;
  model.padded_vocab = padded(model.vocab, config.make_vocab_size_divisible_by);
  model.tied = config.tie_word_embeddings.value_or(gpt2);
  model.linear_bias = config.add_bias_linear.value_or(gpt2);
  model.qkv_bias = config.add_qkv_bias.value_or(model.linear_bias);
  model.qk_norm = config.qk_layernorm;
  model.norm_epsilon = config.norm_epsilon;
  model.rotary_base = config.rotary_base;
  model.rope_scaling = config.rope_scaling;
  model.hidden_dropout = config.hidden_dropout;
  model.attention_dropout = config.attention_dropout;
  model.embedding_dropout = config.embedding_dropout;
  model.init_std = config.perform_initialization ? config.init_method_std : 0.0;
  model.whole_logits = !config.cross_entropy_loss_fusion;
  model.experts = moe.num_experts;
  model.topk = moe.router_topk;
  model.expert_ffn = moe.ffn_hidden_size.value_or(model.ffn);
  model.first_dense = moe.first_dense_layers;
  model.expert_every = std::max<std::int64_t>(1, moe.layer_frequency);
  model.sigmoid_scores = moe.router_score_function == ScoreFunction::sigmoid;
  model.topk_scaling = moe.router_topk_scaling_factor;
  model.expert_groups = std::max<std::int64_t>(1, moe.router_num_groups);
  model.group_topk = std::max<std::int64_t>(1, moe.router_group_topk);
  model.expert_bias = moe.router_enable_expert_bias;
  model.bias_rate = moe.router_bias_update_rate;
  model.shared_ffn = moe.shared_expert_intermediate_size.value_or(0);
  model.shared_gate = moe.shared_expert_gate && model.shared_ffn > 0;
  model.rounds = moe.router_choice == ExpertChoice::rounds;
  model.pre_softmax = moe.router_pre_softmax.value_or(model.topk == 1);
  const bool whole = model.sigmoid_scores ? model.topk == 1 : model.pre_softmax;
  model.weights = moe.router_weights.value_or(whole ? ExpertWeights::all : ExpertWeights::chosen);
  const bool by_micro_batch = moe.expert_group == ExpertGroup::micro_batch;
  model.routing_group = moe.expert_group_size.value_or(by_micro_batch ? 0 : model.seq_length);
  model.capacity_group = moe.capacity_group_size.value_or(model.routing_group);
  model.free_counts = moe.balance_counts == BalanceCounts::free &&
                      (model.expert_bias || model.group_topk < model.expert_groups);
  model.capacity_factor = moe.capacity_factor.value_or(0);
  model.overflow = moe.overflow;
  model.balance_factor =
      moe.router_load_balancing_type == LoadBalancing::none ? 0 : moe.aux_loss_factor;
  model.z_factor = moe.z_loss_factor;
  return model;
}

ModelShape with_groups(ModelShape model, std::int64_t micro_batch_tokens) {
  if (model.routing_group == 0) model.routing_group = micro_batch_tokens;
  if (model.capacity_group == 0) model.capacity_group = micro_batch_tokens;
  return model;
}

std::int64_t sequences_of_groups(const ModelShape& model) {
  if (model.experts == 1) return 1;
  const std::int64_t sequence = std::max<std::int64_t>(1, model.seq_length);
  std::int64_t tokens = sequence;
  for (const std::int64_t group : {model.routing_group, model.capacity_group}) {
    const std::int64_t more = group > 0 ? group / std::gcd(tokens, group) : 1;
    if (more > (std::int64_t{1} << 60) / tokens) return 1;  // no micro-batch is so large
    tokens *= more;
  }
  return tokens / sequence;
}

}  // namespace trainctl
