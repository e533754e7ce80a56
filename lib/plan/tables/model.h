// The model's sizes with every default filled in. Code below the config knows the network only by
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/attention_part.h"
#include "base/kinds.h"
#include "config/schema/config.h"
#include "plan/tables/splits.h"

namespace trainctl {

/// Parameters of a RoPE table of sines and cosines: [positions, size].
struct RopeForm {
  std::int64_t size = 0;  // features of a head that are rotated, the first ones
  double base = 10000.0;
  RopeType type = RopeType::none;
  RopeScalingConfig scaling{};
  bool interleaved = false;           // a pair is two neighbouring features
  double amplitude = 1;               // factor of cos and sin
  std::vector<double> pair_factor{};  // [size / 2] for longrope, else empty
  friend bool operator==(const RopeForm&, const RopeForm&) = default;
};

/// Properties that may differ from layer to layer.
struct LayerKind {
  std::string name{};  // name in model.layers, "" if that list is empty
  std::int64_t ffn = 0, kv_heads = 0;
  bool qk_norm = false;
  bool experts = false;  // experts instead of a plain MLP
  int rope = -1;         // index in ModelShape::ropes; -1 = no RoPE
  KeyLimits limits{};
  int temperature = -1;  // index in ModelShape::temperatures; -1 = none
  bool sinks = false;    // the softmax of each head has a learned extra term
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

/// `family` is the name of the architecture for other software. Code uses the members after it, so
/// a new family is only another choice of them in model_shape().
struct ModelShape {
  Family family = "gpt2";
  NormKind norm_kind = NormKind::layer_norm;
  bool learned_positions = true;  // a table added to the token embedding; else RoPE
  Activation activation = Activation::gelu;
  bool gated_mlp = false;  // act(gate) * up instead of act(up)
  std::int64_t layers = 0, hidden = 0, heads = 0, head_dim = 0;
  std::vector<LayerKind> kinds{};                 // different layers; at least one
  std::vector<std::uint8_t> kind_of_layer{};      // index in `kinds`; empty if all are the first
  std::vector<RopeForm> ropes{};                  // indexed by LayerKind::rope
  std::vector<TemperatureConfig> temperatures{};  // indexed by LayerKind::temperature
  std::int64_t seq_length = 0;
  std::int64_t longest = 0;       // longest sequence of any replica [tokens]; 0 = seq_length
  std::int64_t positions = 0;     // rows of the position table or of the RoPE table
  std::int64_t vocab = 0;         // tokens in use
  std::int64_t padded_vocab = 0;  // rows of the embedding table; independent of parallel sizes
  bool tied = false;
  bool out_bias = false;  // the attention's output projection has a bias
  bool mlp_bias = false;  // MLP and experts have biases
  bool qkv_bias = false;
  double norm_epsilon = 1e-5;
  double softmax_scale = 1;  // factor of the products of queries and keys
  double attention_cap = 0;  // c in scores c tanh(s / c); 0 = no cap
  double gate_offset = 0;    // added to the up projection of a gated MLP
  double gate_limit = 0;     // bound of gate and up projections; 0 = none
  NormPlacement norm_placement = NormPlacement::pre;
  QkNormForm qk_norm_form = QkNormForm::head;  // used by kinds with qk_norm
  bool qk_norm_after_rope = false;
  bool output_gate = false;  // attention has an output gate
  bool zero_centered_norm = false;
  double embedding_multiplier = 1;
  double residual_multiplier = 1;  // factor of a branch's output, before the residual sum
  double logit_scale = 1;
  double logit_cap = 0;  // c in logits c tanh(s / c); 0 = no cap
  double hidden_dropout = 0, attention_dropout = 0, embedding_dropout = 0;
  double init_std = 0.02;
  bool whole_logits = false;    // the head computes all logits of a micro-batch at once
  std::int64_t experts = 1;     // 1 = a plain MLP in every block
  std::int64_t topk = 1;        // number of experts of each token
  std::int64_t expert_ffn = 0;  // hidden width of one expert
  bool rounds = false;          // a token chooses its experts in rounds
  bool sigmoid_scores = false;  // each expert's score is a sigmoid, not a softmax
  bool pre_softmax = true;      // groups of experts compare softmax scores, not logits
  ExpertWeights weights = ExpertWeights::all;  // how a score is normalised
  double topk_scaling = 1;                     // factor of the weights
  std::int64_t expert_groups = 1;              // groups, of which a token uses group_topk
  std::int64_t group_topk = 1;
  bool expert_bias = false;  // added to scores in the choice; updated after each step
  double bias_rate = 0;
  std::int64_t shared_ffn = 0;  // width of the shared experts; 0 = no shared experts
  bool shared_gate = false;     // a sigmoid gate scales the output of shared experts
  // Number of tokens over which balance and capacity are counted. 0 until with_groups() fills in
  // the tokens of a micro-batch.
  std::int64_t routing_group = 0, capacity_group = 0;
  bool free_counts = false;    // balance loss counts the choices without bias and groups
  double capacity_factor = 0;  // expert slots per token and choice; 0 = no limit
  Overflow overflow = Overflow::position;
  double balance_factor = 0, z_factor = 0;

  /// The index in `kinds` of block `layer` (from 0).
  int kind_number(std::int64_t layer) const {
    const auto at = static_cast<std::size_t>(layer);
    return at < kind_of_layer.size() ? kind_of_layer[at] : 0;
  }
  const LayerKind& kind(std::int64_t layer) const {
    return kinds[static_cast<std::size_t>(kind_number(layer))];
  }
  /// Whether the config names kinds of layers.
  bool names_kinds() const { return !kinds.front().name.empty(); }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
  /// This model for sequences of `length` tokens; other replicas may have longer ones.
  ModelShape of_length(std::int64_t length) const {
    ModelShape shorter = *this;
    shorter.longest = longest_sequence();
    shorter.seq_length = length;
    return shorter;
  }
  std::int64_t longest_sequence() const { return longest > 0 ? longest : seq_length; }
  std::int64_t q_features() const { return heads * head_dim; }
};

/// For each layer, the index of its entry in model.layers: from layer_pattern, or if that is not
/// given or invalid, `count` times each entry, repeated and cut at num_layers. Empty without
/// entries.
ParsedList<std::uint8_t> layer_order(const ModelConfig& config);

/// The model's config with the values that `entry` sets, as if all layers were of this kind.
ModelConfig config_of(const ModelConfig& model, const LayerEntry& entry);

/// Fills in defaults but checks nothing (see check_model in plan/rules/check.h).
ModelShape model_shape(const ModelConfig& config, const MoeConfig& moe = {});

/// 1 / sqrt(head_dim), in single precision as the attention kernels use it.
double default_softmax_scale(std::int64_t head_dim);

/// Fills in routing_group and capacity_group where they are 0, with the number of tokens of one
/// replica's micro-batch.
ModelShape with_groups(ModelShape model, std::int64_t micro_batch_tokens);

/// The least number of sequences whose tokens fill whole routing and capacity groups; 1 without
/// experts.
std::int64_t sequences_of_groups(const ModelShape& model);

}  // namespace trainctl
