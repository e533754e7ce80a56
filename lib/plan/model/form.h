// The form of one layer without the mesh (LayerForm) and a rank's share of it (LayerShare): all
// that the declarations of this room read of the model and of the mesh. Only here sizes are divided
// by the axes of the mesh. (Shapes of parameters follow from ParamSpec::split_dim.)
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "base/kinds.h"
#include "plan/tables/layout.h"
#include "plan/tables/mesh.h"
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

struct ExpertsForm {
  std::int64_t experts = 1;
  std::int64_t topk = 1;        // of each token
  std::int64_t expert_ffn = 0;  // width inside one expert
  std::int64_t shared_ffn = 0;  // width of the shared experts; 0: none
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
  std::int64_t ffn = 0;                 // width of an MLP
  bool gated = false;                   // act(gate) * up instead of act(up)
  std::optional<ExpertsForm> routed{};  // none: an MLP

  bool has_experts() const { return routed.has_value(); }
  const ExpertsForm& experts() const { return *routed; }
};

/// The form of layer `layer` (from 0) of the model. Only here a layer's form is made of what the
/// model says of all layers and of its kind.
LayerForm layer_form(const ModelShape& model, std::int64_t layer);

/// The first unit of the model (plan/tables/stage_map.h) that is a block with experts, or one
/// without; 0: none is.
int first_block_with(const ModelShape& model, bool experts);
/// Layers before the first that has experts.
std::int64_t dense_layers_first(const ModelShape& model);

/// Tokens of a micro-batch on a rank.
struct StreamShape {
  std::int64_t tokens = 0;       // 1 / cp of them
  std::int64_t stream_rows = 0;  // of the residual stream: with sequence parallelism 1 / tp of them
};

/// Sizes that do not depend on the layer.
struct EndShape : StreamShape {
  std::int64_t vocabulary = 0;  // rows of the head
  std::int64_t head_rows = 0;   // tokens that the head takes
};

/// One layer. A layer without experts is one that sends every token to a single expert.
struct LocalShape : StreamShape {
  std::int64_t attention_rows = 0;  // tokens of which this rank makes q, k, v and the output
  std::int64_t heads = 0;           // of these products
  std::int64_t kv_heads = 0;    // at least 1: neighbouring ranks share one where there are fewer
  std::int64_t q = 0;           // features of the queries
  std::int64_t kv = 0;          // features of the keys, and of the values
  std::int64_t head_ranks = 1;  // tensor-parallel ranks that exchange tokens for heads, so that
                                // attention has all tokens
  std::int64_t mlp_rows = 0;    // tokens of the products of a plain MLP
  std::int64_t ffn = 0;
  std::int64_t experts = 1;         // held here
  std::int64_t routed_tokens = 0;   // whose experts this rank uses: all of the micro-batch, or
                                    // those of its residual stream
  std::int64_t sent_tokens = 0;     // routed tokens that this rank sends
  std::int64_t met_tokens = 0;      // whose choices its experts work on each once, if all experts
                                    // are chosen equally often
  std::int64_t routing_ranks = 1;   // which route the tokens of all of them alike
  std::int64_t routing_groups = 0;  // of the tokens of its context-parallel group
  std::int64_t counted_rows = 0;    // of them: rows of numbers of choices (RouterChoice::counted)
  std::int64_t capacity = 0;        // most choices of such a group that an expert takes; 0: all
  std::int64_t routed_rows = 0;     // most choices of this rank's tokens that reach their expert
  std::int64_t expert_rows = 0;     // most rows that the experts held here get, from all ranks
  std::int64_t received_rows = 0;   // the most of these that come to this rank before its parts of
                                    // experts share them (ExchangeRule::parts)
  std::int64_t gathered_rows = 0;  // received rows with those of the others, in parts of one length
  std::int64_t expert_ffn = 0;
  std::int64_t shared_ffn = 0;  // of the shared experts
};

/// The facts of the mesh that all layers of a stage share.
struct MeshShare {
  const Mesh& mesh;
  std::int64_t micro_batch_size = 1;
  bool sequence_parallel = false;
};

/// Sizes that an axis does not divide (an error of the configuration) are rounded down, here and
/// below.
EndShape end_shape(const ModelShape& model, const MeshShare& share, SplitBy head);
LocalShape local_shape(const LayerForm& form, const MeshShare& share, BlockSplit split = {},
                       const ExchangeRule& exchange = {});

/// Most choices of a group of capacity_group tokens that one expert takes (base/token_layout.h); 0
/// without a limit, or without experts.
std::int64_t moe_capacity(const LayerForm& form);

/// Tokens of which a rank's head has logits at a time: all with whole_logits, else head_chunk.
std::int64_t head_tokens(const ModelShape& model, const EndShape& local, DType compute,
                         DeviceKind device = DeviceKind::cpu, std::int64_t most = 0);

/// Tokens per chunk of the fused head over `vocabulary` rows; chunks are nearly equal, and no
/// larger than `most`, or where that is 0 than suits the device. On a CPU that is a quarter of the
/// tokens (large chunks keep the products fast), but logits of at most 256 MiB, and never fewer
/// than 64 tokens. On a device it is 8,192 tokens: each chunk reads and writes the fp32 gradient of
/// the whole table.
std::int64_t head_chunk(std::int64_t vocabulary, std::int64_t tokens, DType compute,
                        DeviceKind device = DeviceKind::cpu, std::int64_t most = 0);

/// A rank's share of one layer.
struct LayerShare {
  LocalShape local{};
  Mesh mesh{};
  Layout stream = Layout::invariant;  // of the residual stream over tp
  BlockSplit split{};
  ContextSplit context{};
  ExchangeRule exchange{};
  TensorOverlap overlap{};
  bool moves_heads_at_once = false;  // OperatorSplits::moves_at_once
  bool fp32_sums = false;            // Plan::fp32_sums
  DType compute = DType::f32;

  std::int64_t stream_elements(const LayerForm& form) const { return local.tokens * form.hidden; }
  /// The type of what ranks add up.
  DType sum_type() const { return fp32_sums ? DType::f32 : compute; }
  /// Ranks that send rows to each expert held here.
  std::int64_t expert_ranks() const { return exchange.parts * mesh.ep; }

  /// The ranks that exchange tokens for heads: context-parallel ones, or tensor-parallel ones.
  std::int64_t head_ranks() const { return context.heads * local.head_ranks; }
  /// The operands of attention: all tokens of these ranks, of a part of the heads.
  std::int64_t attended_tokens() const { return local.attention_rows * head_ranks(); }
  std::int64_t attended_q() const { return local.q / head_ranks(); }
  std::int64_t attended_kv() const { return local.kv / head_ranks(); }
  /// Heads of all those tokens.
  std::int64_t attended_heads() const { return local.attention_rows * local.heads; }
  bool attends_like(const LayerShare& other) const {
    return split.attention == other.split.attention && context == other.context &&
           local.q == other.local.q && local.kv == other.local.kv;
  }
};

}  // namespace trainctl
