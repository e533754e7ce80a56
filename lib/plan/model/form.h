// What one layer is, without the mesh: all that the declarations of this room read of the model.
#pragma once

#include <cstdint>
#include <variant>

#include "plan/tables/model.h"

namespace trainctl {

struct AttentionForm {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  bool qk_norm = false;
  int rope = -1;               // of ModelShape::ropes; -1: queries and keys do not turn
  bool whole_qk_norm = false;  // over all heads at once
  KeyLimits limits{};
  int temperature = -1;      // of ModelShape::temperatures; -1: none
  bool sinks = false;        // a learned term of each head's softmax
  bool output_gate = false;  // the result is multiplied by a sigmoid
  bool qk_weights = false;   // q/k norms have weights

  std::int64_t q() const { return heads * head_dim; }      // features of the queries
  std::int64_t kv() const { return kv_heads * head_dim; }  // of the keys, and of the values
};

struct MlpForm {
  std::int64_t ffn = 0;
  bool gated = false;  // act(gate) * up instead of act(up)
};

struct ExpertsForm {
  std::int64_t experts = 1;
  std::int64_t topk = 1;        // of each token
  std::int64_t expert_ffn = 0;  // width inside one expert
  std::int64_t shared_ffn = 0;  // width of the shared experts; 0: none
  bool gated = false;           // as in MlpForm
  bool shared_gate = false;     // the output of shared experts is multiplied by a sigmoid
  // These of ModelShape: tokens over which choices are counted and limited, and how.
  std::int64_t routing_group = 0, capacity_group = 0;
  double capacity_factor = 0;
  bool rounds = false;
  bool free_counts = false;

  /// Rows of numbers of choices that each routing group has.
  std::int64_t counts_of_group() const { return rounds ? topk : free_counts ? 2 : 1; }
  /// Whether the layer needs all tokens of the micro-batch where each rank could route those of its
  /// part of the residual stream (`by_stream` of ExchangeRule): shared experts do.
  bool needs_all(bool by_stream) const { return !by_stream || shared_ffn > 0; }
};

struct LayerForm {
  std::int64_t hidden = 0;
  std::int64_t keys = 0;     // tokens of a sequence
  std::int64_t longest = 0;  // of the sequences of all replicas
  NormKind norm = NormKind::layer_norm;
  NormPlacement norms = NormPlacement::pre;
  bool copies_gradients = false;  // of both branches: they have dropout, a factor or a norm
  AttentionForm attention{};
  std::variant<MlpForm, ExpertsForm> feed_forward{};

  bool has_experts() const { return std::holds_alternative<ExpertsForm>(feed_forward); }
  const MlpForm& mlp() const { return std::get<MlpForm>(feed_forward); }
  const ExpertsForm& experts() const { return std::get<ExpertsForm>(feed_forward); }
};

/// Of layer `layer` (from 0) of the model. Only here a layer's form is made of what the model says
/// of all layers and of its kind.
LayerForm layer_form(const ModelShape& model, std::int64_t layer);

/// The first unit of the model (plan/tables/unit_range.h) that is a block with experts, or one
/// without; 0: none is.
int first_block_with(const ModelShape& model, bool experts);
/// Layers before the first that has experts.
std::int64_t dense_layers_first(const ModelShape& model);

}  // namespace trainctl
