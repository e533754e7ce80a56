// The parameter table: one row per parameter, in model order (embedding, layers, head).
// Initialisation, allocation, gradient reduction, norm, checkpoint and the memory estimate all read
// it. An entry of optimizer.groups may change how a parameter is updated.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "config/schema/config.h"
#include "plan/tables/layout.h"
#include "plan/tables/mesh.h"
#include "plan/tables/model.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

using InitKind = OneOf<"normal|zeros|ones">;

/// The role of a parameter in its layer.
enum class ParamKind : std::uint8_t {
  token_embedding,
  position_embedding,
  norm,  // a norm of the residual stream
  query,
  key,
  value,
  query_norm,
  key_norm,
  attention_output,
  mlp_gate,
  mlp_up,
  mlp_down,
  router,       // also the gate of shared experts, which routes to one expert
  expert_bias,  // has no gradient
  expert_gate,
  expert_up,
  expert_down,
  head,
  attention_gate,
  sinks,  // learned terms of the attention softmax
};

struct ParamSpec {
  std::string name;  // "layers.3.attention.q.weight"; the full list is below
  ParamKind kind = ParamKind::token_embedding;
  bool bias = false;  // whether this is the bias of the layer `kind`
  Shape global_shape;
  Shape shape;                // shape of this rank's shard
  bool is_vector = false;     // kernels read it in fp32 always: vectors and routers
  DType master = DType::f32;  // dtype of the master value, which may be cast for kernels
  InitKind init = "normal";
  double init_deviation = 0;
  bool decay = false;
  OptimizerType update = OptimizerType::adamw;            // a row of config/schema/optimizers.h
  int group = -1;                                         // entry of optimizer.groups, or -1
  double rate_factor = 1;                                 // factor of the scheduled learning rate
  double decay_factor = 1;                                // factor of the scheduled decay
  int unit = 0;                                           // unit whose B ends the gradient
  std::array<std::int8_t, axis_count> split_dim = whole;  // dim cut over the axis, or -1
  std::array<bool, axis_count> gradient_sum{};            // gradient is summed over the axis
  bool expert = false;  // replicas are along edp; along dp and cp if false
  // Number of neighbouring tp ranks that hold the same shard (with fewer key and value heads than
  // tp). The gradient is summed over these ranks. 1 if every tp rank has its own shard.
  std::int64_t tp_copies = 1;
  // Whether the first and the last stage both hold this tied embedding. Then its gradient is summed
  // over the embedding group, and only one copy counts in norms and checkpoints.
  bool two_homes = false;
  bool second_home = false;  // this is the copy of the last stage
  bool head = false;         // this tied embedding is also read by the head on this stage

  static constexpr std::array<std::int8_t, axis_count> whole{-1, -1, -1, -1, -1, -1, -1};
};

/// Parameter names of all families (a tied head has no row; in brackets: shape or condition):
///   embedding.token.weight [padded_vocab, hidden]   embedding.position.weight [positions, hidden]
///   (learned positions)   layers.N.norm1.weight/.bias
///   layers.N.attention.{gate,q,k,v,out}.weight/.bias (gate: without bias, with an output gate)
///   layers.N.attention.{q,k}_norm.weight   layers.N.attention.sinks.weight [heads]
///   layers.N.norm2.weight/.bias   layers.N.post_norm{1,2}.weight/.bias (norms after the branches)
///   layers.N.mlp.{gate,up,down}.weight/.bias (gate: gated MLP)
///   layers.N.moe.router.weight [experts, hidden]   layers.N.moe.expert_bias [experts]
///   layers.N.moe.experts.{gate,up,down}.weight/.bias (of each expert as of mlp, [experts, ...])
///   layers.N.moe.shared_gate.weight [1, hidden]   layers.N.moe.shared.{gate,up,down}.weight
///   final_norm.weight/.bias       head.weight [padded_vocab, hidden] (untied)
/// Every matrix is [out, in]. Norm biases exist with LayerNorm only.
struct ParameterInput {
  const ModelShape& model;
  const Mesh& mesh;
  bool sequence_parallel = false;
  OperatorSplits splits{};                     // how tensor-parallel ranks share operators
  DType masters = DType::f32;                  // dtype of master matrices; vectors have fp32
  const OptimizerConfig* optimizer = nullptr;  // nullptr = AdamW without groups
};
/// The parameters of the units in `units` (every chunk of one stage), in model order. If a tied
/// head is on another stage than the embedding, it has its own row embedding.token.weight with
/// second_home.
std::vector<ParamSpec> make_parameters(const ParameterInput& input,
                                       const std::vector<UnitRange>& units);
/// The parameters of the whole model.
std::vector<ParamSpec> make_parameters(const ModelShape& model, const Mesh& mesh);

struct Slice {  // elements [begin, end) of a rank's share of a parameter
  std::int64_t begin = 0, end = 0;
  std::int64_t length() const { return end - begin; }
};

/// Gradients that are reduced together. Buckets partition the flat gradient buffer. It holds the
/// parameters in reverse model order (rule layers: group by group). Dense parameters come before
/// experts; in each of these two, those that the parallel optimizer shards before unsharded ones. A
/// tied embedding on two stages is a bucket of its own.
struct Bucket {
  std::int64_t offset = 0;  // elements into the flat buffer
  std::int64_t length = 0;
  std::vector<int> parameters;  // indices in the parameter table, in buffer order
  int ready_unit = 0;           // the gradients are complete after this unit's backward
  bool expert = false;          // reduced over edp; over dp and cp if false
};

struct FlatBuffer {
  std::vector<std::int64_t> offset;  // per parameter, elements
  std::vector<Bucket> buckets;       // in order of readiness, dense buckets before expert buckets
  std::int64_t length = 0;           // elements
};

/// The inputs that decide how one stage's gradients are cut into buckets.
struct BucketInput {
  BucketRule rule = BucketRule::size;
  std::int64_t bucket_size = 0;         // elements; 0 = the rule's default
  std::int64_t replicas = 1;            // dp x cp
  std::int64_t expert_replicas = 1;     // edp
  bool parallel_optimizer = false;      // rule megatron: pads buckets
  int stage = 0;                        // rule megatron: only stage 0, chunk 0 has several buckets
  bool overlap = true;                  // rule megatron: overlap_grad_reduce
  CommFusionConfig fusion;              // settings of rule comm_fusion
  std::int64_t aggregation_groups = 1;  // rule layers: gradient_aggregation_group
  std::int64_t layers = 0;              // number of layers of the whole model
  std::vector<UnitRange> units;         // per chunk of the stage; no bucket spans two chunks
  std::vector<bool> scattered;          // whether the gradient is reduce-scattered, by parameter
};

/// Lays out the flat gradient buffer. With the parallel optimizer, reduce-scattered gradients and
/// others are in different buckets, except with megatron, which cuts buckets across parameters. The
/// rules: size closes a bucket at bucket_size elements, default 4,000,000. megatron follows
/// megatron.core param_and_grad_buffer, in elements; with the parallel optimizer, starts are padded
/// to 64 and lengths to lcm(replicas, 128). comm_fusion takes MindSpore's auto, size and index
/// blocks (elements of fp32: MB x 1048576 / 4) from `reducescatter` for scattered gradients and
/// from `allreduce` for others; a missing one is auto, as is index with the parallel optimizer;
/// openstate false gives each parameter a bucket. layers makes blocks of max(layers /
/// gradient_aggregation_group, 1) layers. Except with megatron, starts are padded to 64 and lengths
/// to 64 x replicas. Details: flat_layout.h.
FlatBuffer make_flat_layout(const std::vector<ParamSpec>& parameters, const BucketInput& input);

/// Whether the whole name fits the pattern: `*` stands for any or no characters, `?` for one.
bool matches(std::string_view pattern, std::string_view name);

/// The index of the first entry of `groups` that matches the parameter's name, or -1. The bias for
/// the choice of experts has its own update rule, so no entry matches it.
int group_of(const ParamSpec& parameter, const OptimizerGroups& groups);

/// Whether an entry of optimizer groups may assign the parameter to Muon: a matrix of attention or
/// of a feed-forward layer, also a router, the gate of shared experts and learned positions, but no
/// table of the vocabulary and no vector.
bool may_have_muon(const ParamSpec& parameter);

}  // namespace trainctl
