// The parameter table: one row per parameter, from which initialisation, allocation, gradient
// reduction, norm, checkpoint and the memory estimate are all read. Order is model order
// (embedding, layers, head). An entry of optimizer.groups may change how a parameter is updated.
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

enum class InitKind : std::uint8_t { normal, zeros, ones };

/// The place of a parameter in its layer.
enum class ParamKind : std::uint8_t {
  token_embedding,
  position_embedding,
  norm,  // of the residual stream
  query,
  key,
  value,
  query_norm,
  key_norm,
  attention_output,
  mlp_gate,
  mlp_up,
  mlp_down,
  router,       // also the gate of shared experts, a router to one
  expert_bias,  // no gradient reaches it
  expert_gate,
  expert_up,
  expert_down,
  head,
  attention_gate,
  sinks,  // of attention
};

struct ParamSpec {
  std::string name;  // "layers.3.attention.q.weight"; the full list is below
  ParamKind kind = ParamKind::token_embedding;
  bool bias = false;  // of the parameter of the same kind before it
  Shape global_shape;
  Shape shape;                // of this rank's shard
  bool is_vector = false;     // kernels read it in fp32 always: vectors and routers
  DType master = DType::f32;  // of its value; layers that read another type have a rounded copy
  InitKind init = InitKind::normal;
  double init_deviation = 0;
  bool decay = false;
  OptimizerType update = OptimizerType::adamw;            // the row of config/schema/optimizers.h
  int group = -1;                                         // entry of optimizer.groups; -1: none
  double rate_factor = 1;                                 // times the scheduled learning rate
  double decay_factor = 1;                                // times the scheduled decay, if it decays
  int unit = 0;                                           // where its gradient is finished last
  std::array<std::int8_t, axis_count> split_dim = whole;  // the dim cut over the axis; -1: none
  std::array<bool, axis_count> gradient_sum{};            // gradient summed over the axis
  bool expert = false;  // its replicas are along edp, all others' along dp and cp
  // Neighbouring tp ranks that hold the same shard (fewer key and value heads than tp): its
  // gradient is summed over them. 1: every tp rank has its own.
  std::int64_t tp_copies = 1;
  // A tied embedding that the first and the last stage both hold. Its gradient is summed over the
  // embedding group, and it counts once in norms and checkpoints.
  bool two_homes = false;
  bool second_home = false;  // the last stage's copy
  bool head = false;         // a tied embedding that the head on this stage reads, too

  static constexpr std::array<std::int8_t, axis_count> whole{-1, -1, -1, -1, -1, -1, -1};
};

/// Parameter names, all families (a tied head has no row of its own):
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
  OperatorSplits splits{};                     // over tp
  DType masters = DType::f32;                  // of matrices; all others have fp32
  const OptimizerConfig* optimizer = nullptr;  // its rows and groups; nullptr: AdamW, no groups
};
/// The parameters of the units in `units` (every chunk of one stage), in model order. A tied head
/// on another stage than the embedding has its own row embedding.token.weight with second_home.
std::vector<ParamSpec> make_parameters(const ParameterInput& input,
                                       const std::vector<UnitRange>& units);
/// The parameters of all units.
std::vector<ParamSpec> make_parameters(const ModelShape& model, const Mesh& mesh);

struct Slice {  // elements [begin, end) of a rank's share of a parameter
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t length() const { return end - begin; }
};

/// Gradients that are reduced together. Buckets partition the flat gradient buffer, which holds the
/// parameters in reverse model order (rule layers: group by group), those of experts behind all
/// others, and in each kind those that a parallel optimizer keeps whole behind the others. A
/// parameter with two homes is a bucket of its own.
struct Bucket {
  std::int64_t offset = 0;  // elements into the flat buffer
  std::int64_t length = 0;
  std::vector<int> parameters;  // in flat order
  int ready_unit = 0;           // the bucket is complete once this unit's backward has run
  bool expert = false;          // reduced over edp, all others over dp and cp
};

struct FlatBuffer {
  std::vector<std::int64_t> offset;  // per parameter, elements
  std::vector<Bucket> buckets;       // in flat order: order of readiness, dense and experts each
  std::int64_t length = 0;           // elements
};

/// The inputs that decide the buckets of one stage.
struct BucketInput {
  BucketRule rule = BucketRule::size;
  std::int64_t bucket_size = 0;         // elements; 0: the rule's default
  std::int64_t replicas = 1;            // dp x cp
  std::int64_t expert_replicas = 1;     // edp
  bool parallel_optimizer = false;      // megatron: pads
  int stage = 0;                        // megatron: later stages and chunks have one bucket
  bool overlap = true;                  // megatron: overlap_grad_reduce
  CommFusionConfig fusion;              // comm_fusion
  std::int64_t aggregation_groups = 1;  // layers: gradient_aggregation_group
  std::int64_t layers = 0;              // of the whole model
  std::vector<UnitRange> units;         // per chunk; no bucket spans two chunks
  std::vector<bool> scattered;          // per parameter; no bucket holds both kinds
};

/// With the parallel optimizer, parameters whose gradient is reduce-scattered are in other buckets
/// than those kept whole (not so megatron, which cuts buckets across parameters).
/// size: closes a bucket at bucket_size elements, default 4,000,000.
/// megatron: megatron.core param_and_grad_buffer, in elements; padded only with the parallel
/// optimizer, then starts to 64 and lengths to lcm(replicas, 128).
/// comm_fusion: MindSpore's auto, size and index blocks (elements of fp32: MB x 1048576 / 4), by
/// reducescatter of the scattered gradients and by allreduce of the others; a kind that is not
/// given is auto, and so is index with the parallel optimizer. openstate false: a bucket for each
/// parameter. layers: gradient_aggregation_group, blocks of max(layers / groups, 1) layers. Starts
/// are padded to 64 and lengths to 64 x replicas except for megatron. Details: flat_layout.h.
FlatBuffer make_flat_layout(const std::vector<ParamSpec>& parameters, const BucketInput& input);

/// Whether the whole name fits the pattern: `*` stands for any characters or none, `?` for one.
bool matches(std::string_view pattern, std::string_view name);

/// The first entry that takes the parameter; -1: none does. The bias by which experts are chosen
/// has a rule of its own, so no entry takes it.
int group_of(const ParamSpec& parameter, const OptimizerGroups& groups);

/// Whether an entry may give it to Muon: a matrix of attention or of a feed-forward layer, also a
/// router, the gate of shared experts and learned positions, but no table of the vocabulary and no
/// vector.
bool may_have_muon(const ParamSpec& parameter);

}  // namespace trainctl
