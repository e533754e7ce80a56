// LayerForm is a layer without the mesh, LayerShare a rank's share of it. The declarations of this
// folder read the model and the mesh only through these two. Only here sizes are divided by mesh
// axes. (Shapes of parameters follow from ParamSpec::split_dim.)
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/kinds.h"
#include "plan/tables/layout.h"
#include "plan/tables/mesh.h"
#include "plan/tables/model.h"

namespace trainctl {

struct AttentionForm {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool qk_norm = false;
  int rope = -1;               // index in ModelShape::ropes; -1 = no RoPE
  bool whole_qk_norm = false;  // q/k norm over all heads at once
  KeyLimits limits{};
  int temperature = -1;      // index in ModelShape::temperatures; -1 = none
  bool sinks = false;        // the softmax of each head has a learned extra term
  bool output_gate = false;  // a sigmoid gate scales the result
  bool qk_weights = false;   // q/k norms have weights

  std::int64_t q() const { return heads * head_dim; }      // features of the queries
  std::int64_t kv() const { return kv_heads * head_dim; }  // features of the keys and of the values
};

struct LayerForm {
  std::int64_t hidden = 0;
  std::int64_t keys = 0;     // tokens of a sequence
  std::int64_t longest = 0;  // longest sequence of any replica, in tokens
  NormKind norm = NormKind::layer_norm;
  NormPlacement norms = NormPlacement::pre;
  bool copies_gradients = false;  // gradients of branches are copied: dropout, factor or norm
  AttentionForm attention{};
  std::int64_t ffn = 0;  // width of an MLP
  bool gated = false;    // act(gate) * up instead of act(up)
  bool routed = false;   // the layer has experts; if false, it is an MLP
  std::int64_t experts = 1;
  std::int64_t topk = 1;        // number of experts of each token
  std::int64_t expert_ffn = 0;  // hidden width of one expert
  std::int64_t shared_ffn = 0;  // width of the shared experts; 0 = no shared experts
  bool shared_gate = false;     // a sigmoid gate scales the output of shared experts
  // Members of ModelShape, which define how choices are counted and limited:
  std::int64_t routing_group = 0, capacity_group = 0;
  double capacity_factor = 0;
  bool rounds = false, free_counts = false;

  bool has_experts() const { return routed; }
  /// Number of rows, with a count of choices for each expert, that each routing group has.
  std::int64_t counts_of_group() const { return rounds ? topk : free_counts ? 2 : 1; }
  /// Whether experts need all tokens of the micro-batch even if each rank routes only those of its
  /// part of the residual stream (`by_stream` of ExchangeRule); shared experts do.
  bool needs_all(bool by_stream) const { return !by_stream || shared_ffn > 0; }
};

/// The form of layer `layer` (from 0). Only this function combines the model's sizes with those of
/// the layer's kind.
LayerForm layer_form(const ModelShape& model, std::int64_t layer);

/// The first unit of the model (plan/tables/stage_map.h) that is a block with experts, or without
/// if `experts` is false; 0 if there is none.
int first_block_with(const ModelShape& model, bool experts);
/// Number of layers before the first layer with experts.
std::int64_t dense_layers_first(const ModelShape& model);

/// A rank's share of the embedding and the head.
struct EndShape {
  std::int64_t tokens = 0;       // tokens of the micro-batch / cp
  std::int64_t stream_rows = 0;  // rows of the residual stream; / tp with sequence parallelism
  std::int64_t vocabulary = 0;   // rows of the head's matrix on this rank
  std::int64_t head_rows = 0;    // tokens that the head reads
};

/// A rank's share of one layer. A plain MLP counts as a single expert to which all tokens go.
struct LocalShape {
  std::int64_t tokens = 0;          // tokens of the micro-batch / cp
  std::int64_t stream_rows = 0;     // rows of the residual stream; / tp with sequence parallelism
  std::int64_t attention_rows = 0;  // tokens for which this rank computes q, k, v and the output
  std::int64_t heads = 0;           // heads of the q projection
  std::int64_t kv_heads = 0;        // at least 1; ranks share a head if there are too few
  std::int64_t q = 0;               // features of the queries
  std::int64_t kv = 0;              // features of the keys and of the values
  std::int64_t head_ranks = 1;      // tensor-parallel ranks that exchange tokens for heads
  std::int64_t mlp_rows = 0;        // tokens of a plain MLP's products
  std::int64_t ffn = 0;
  std::int64_t experts = 1;         // number of experts on this rank
  std::int64_t routed_tokens = 0;   // tokens that this rank routes: all of the micro-batch, or
                                    // those of its residual stream
  std::int64_t sent_tokens = 0;     // routed tokens that this rank sends
  std::int64_t met_tokens = 0;      // tokens whose choices this rank's experts compute, if experts
                                    // are chosen equally often
  std::int64_t routing_ranks = 1;   // number of ranks that route their tokens together
  std::int64_t routing_groups = 0;  // groups among the tokens of the cp ranks
  std::int64_t counted_rows = 0;    // rows of choice counts for all groups (RouterChoice::counted)
  std::int64_t capacity = 0;        // most choices of a capacity group per expert; 0 = no limit
  std::int64_t routed_rows = 0;     // most choices of this rank's tokens that are not dropped
  std::int64_t expert_rows = 0;     // most rows for this rank's experts from all ranks
  std::int64_t received_rows = 0;   // most rows that reach this rank before ranks with shards of
                                    // the same experts gather them (ExchangeRule::parts)
  std::int64_t gathered_rows = 0;   // received rows of all shards, padded to one length
  std::int64_t expert_ffn = 0;
  std::int64_t shared_ffn = 0;  // width of the shared experts
};

/// The facts of the mesh that all layers of a stage share.
struct MeshShare {
  const Mesh& mesh;
  std::int64_t micro_batch_size = 1;
  bool sequence_parallel = false;
};

/// Sizes that an axis does not divide (a config error) are rounded down, here and below.
EndShape end_shape(const ModelShape& model, const MeshShare& share, SplitBy head);
LocalShape local_shape(const LayerForm& form, const MeshShare& share, BlockSplit split = {},
                       const ExchangeRule& exchange = {});

/// Most choices of one capacity group that an expert takes (base/token_layout.h); 0 without a limit
/// or without experts.
std::int64_t moe_capacity(const LayerForm& form);

/// Number of tokens whose logits exist at a time: head_chunk(), or all with whole_logits.
std::int64_t head_tokens(const ModelShape& model, const EndShape& local, DType compute,
                         DeviceKind device = DeviceKind::cpu, std::int64_t most = 0);

/// Tokens per chunk of the fused head over `vocabulary` rows. Chunks are nearly equal and at most
/// `most` tokens; if `most` is 0, a default of the device. CPU: a quarter of the tokens (large
/// chunks keep the products fast), but logits of at most 256 MiB, and at least 64 tokens. Other
/// devices: 8,192 tokens, because each chunk reads and writes the fp32 gradient of the whole table.
std::int64_t head_chunk(std::int64_t vocabulary, std::int64_t tokens, DType compute,
                        DeviceKind device = DeviceKind::cpu, std::int64_t most = 0);

/// A rank's share of one layer.
struct LayerShare {
  LocalShape local{};
  Mesh mesh{};
  Layout stream = Layout::invariant;  // layout of the residual stream over tp
  BlockSplit split{};
  ContextSplit context{};
  ExchangeRule exchange{};
  TensorOverlap overlap{};
  bool moves_heads_at_once = false;  // OperatorSplits::moves_at_once
  bool fp32_sums = false;            // Plan::fp32_sums
  DType compute = DType::f32;

  std::int64_t stream_elements(const LayerForm& form) const { return local.tokens * form.hidden; }
  /// The dtype of tensors that ranks sum.
  DType sum_type() const { return fp32_sums ? DType::f32 : compute; }
  /// Number of ranks that send rows to each expert of this rank.
  std::int64_t expert_ranks() const { return exchange.parts * mesh.ep; }

  /// Number of ranks, context- or tensor-parallel, that exchange tokens for heads.
  std::int64_t head_ranks() const { return context.heads * local.head_ranks; }
  /// The sizes of attention's operands: all tokens of these ranks, but only a part of the heads.
  std::int64_t attended_tokens() const { return local.attention_rows * head_ranks(); }
  std::int64_t attended_q() const { return local.q / head_ranks(); }
  std::int64_t attended_kv() const { return local.kv / head_ranks(); }
  /// Number of pairs of a token and a head.
  std::int64_t attended_heads() const { return local.attention_rows * local.heads; }
  bool attends_like(const LayerShare& other) const {
    return split.attention == other.split.attention && context == other.context &&
           local.q == other.local.q && local.kv == other.local.kv;
  }
};

}  // namespace trainctl
