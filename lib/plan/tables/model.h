// The model's sizes with every default filled in: the only description of the network below the
// config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/attention_part.h"
#include "base/kinds.h"
#include "config/schema/config.h"
#include "plan/tables/splits.h"

namespace trainctl {

/// A table of sines and cosines: [positions, size].
struct RopeForm {
  std::int64_t size = 0;  // features of a head that turn, its first ones
  double base = 10000.0;
  RopeType type = RopeType::none;
  RopeScalingConfig scaling{};
  bool interleaved = false;           // pairs are neighbours
  double amplitude = 1;               // of cos and sin
  std::vector<double> pair_factor{};  // [size / 2] of longrope; else empty
  friend bool operator==(const RopeForm&, const RopeForm&) = default;
};

/// Properties that may differ from layer to layer.
struct LayerKind {
  std::string name{};  // in model.layers; "" where that names none
  std::int64_t ffn = 0;
  std::int64_t kv_heads = 0;
  bool qk_norm = false;
  bool experts = false;  // instead of a plain MLP
  int rope = -1;         // of ModelShape::ropes; -1: queries and keys do not turn
  KeyLimits limits{};
  int temperature = -1;  // of ModelShape::temperatures; -1: none
  bool sinks = false;    // a learned term of each head's softmax
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

/// `family` is what the world outside calls the network. Code asks for the parts that follow it,
/// so that a family is one more way of choosing them in model_shape().
struct ModelShape {
  Family family = "gpt2";
  NormKind norm_kind = NormKind::layer_norm;
  bool learned_positions = true;  // a table added to the token embedding; else RoPE
  Activation activation = Activation::gelu;
  bool gated_mlp = false;  // act(gate) * up instead of act(up)
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::vector<LayerKind> kinds{};             // at least one
  std::vector<std::uint8_t> kind_of_layer{};  // a number of `kinds`; empty: all are of the first
  std::vector<RopeForm> ropes{};              // those that kinds name
  std::vector<TemperatureConfig> temperatures{};  // the same
  std::int64_t seq_length = 0;
  std::int64_t longest =
      0;  // of the sequences of all replicas, of which these are shorter; 0: these
  std::int64_t positions = 0;     // rows of the position table or of the RoPE table
  std::int64_t vocab = 0;         // real tokens
  std::int64_t padded_vocab = 0;  // rows of the embedding; independent of any parallel size
  bool tied = false;
  bool out_bias = false;  // of the attention's output
  bool mlp_bias = false;  // of the MLP and experts
  bool qkv_bias = false;
  double norm_epsilon = 1e-5;
  double softmax_scale = 1;  // of products of queries and keys
  double attention_cap = 0;  // c of scores c tanh(s / c); 0: none
  double gate_offset = 0;    // added to up in a gated MLP
  double gate_limit = 0;     // of gate and up; 0: none
  NormPlacement norm_placement = NormPlacement::pre;
  QkNormForm qk_norm_form = QkNormForm::head;  // with qk_norm
  bool qk_norm_after_rope = false;
  bool output_gate = false;  // of attention
  bool zero_centered_norm = false;
  double embedding_multiplier = 1;
  double residual_multiplier = 1;  // of what a branch adds to the residual stream
  double logit_scale = 1;
  double logit_cap = 0;  // as attention_cap
  double hidden_dropout = 0, attention_dropout = 0, embedding_dropout = 0;
  double init_std = 0.02;
  bool whole_logits = false;    // the head computes all logits of a micro-batch at once
  std::int64_t experts = 1;     // 1: a plain MLP in every block
  std::int64_t topk = 1;        // experts of each token
  std::int64_t expert_ffn = 0;  // width inside one expert
  bool rounds = false;          // the experts of a token are chosen in rounds
  bool sigmoid_scores = false;  // of each expert by itself
  bool pre_softmax = true;      // groups of experts are compared by the softmax, not by logits
  ExpertWeights weights = ExpertWeights::all;  // what a score is divided by
  double topk_scaling = 1;                     // of the weights
  std::int64_t expert_groups = 1;              // in group_topk of which a token chooses
  std::int64_t group_topk = 1;
  bool expert_bias = false;  // in the choice; moved by bias_rate after each step
  double bias_rate = 0;
  std::int64_t shared_ffn = 0;  // width of the shared experts; 0: none
  bool shared_gate = false;     // their output is multiplied by a sigmoid
  // Tokens over which balance and capacity are counted; 0: those of a micro-batch, until it is
  // known (with_groups).
  std::int64_t routing_group = 0, capacity_group = 0;
  bool free_counts = false;    // balance: what would be chosen without bias and groups of experts
  double capacity_factor = 0;  // slots of the experts per token and choice; 0: no limit
  Overflow overflow = Overflow::position;
  double balance_factor = 0;
  double z_factor = 0;

  /// The kind of block `layer` (from 0).
  int kind_number(std::int64_t layer) const {
    const auto at = static_cast<std::size_t>(layer);
    return at < kind_of_layer.size() ? kind_of_layer[at] : 0;
  }
  const LayerKind& kind(std::int64_t layer) const {
    return kinds[static_cast<std::size_t>(kind_number(layer))];
  }
  /// Whether the file gives kinds of layers.
  bool names_kinds() const { return !kinds.front().name.empty(); }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
  /// With sequences of `length` tokens, while other replicas may have longer ones.
  ModelShape of_length(std::int64_t length) const {
    ModelShape shorter = *this;
    shorter.longest = longest_sequence();
    shorter.seq_length = length;
    return shorter;
  }
  std::int64_t longest_sequence() const { return longest > 0 ? longest : seq_length; }
  std::int64_t q_features() const { return heads * head_dim; }
};

/// The number of each layer's entry in model.layers: as layer_pattern says, else `count` times
/// each entry, repeated and cut at num_layers. Empty without entries. Where layer_pattern cannot be
/// read, the order is that without it.
ParsedList<std::uint8_t> layer_order(const ModelConfig& config);

/// The model as if all of its layers were those of an entry.
ModelConfig config_of(const ModelConfig& model, const LayerEntry& entry);

/// Fills defaults; checks nothing (check_model in plan/rules/check.h does, with positions).
ModelShape model_shape(const ModelConfig& config, const MoeConfig& moe = {});

/// 1 / sqrt(head_dim), as attention takes it.
double default_softmax_scale(std::int64_t head_dim);

/// With the tokens of a micro-batch of one replica where groups are as large.
ModelShape with_groups(ModelShape model, std::int64_t micro_batch_tokens);

/// The least number of whole sequences that whole groups make up; 1 without experts.
std::int64_t sequences_of_groups(const ModelShape& model);

}  // namespace trainctl
