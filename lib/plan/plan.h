// Everything that is decided before a process starts, as one printable value. Every rank computes
// the same Plan from the same YAML; its hash is compared before the first step. Pure: no MPI, CUDA,
// files, threads or clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/attention_part.h"
#include "base/kinds.h"
#include "config/schema/config.h"
#include "config/support/batch_ramp.h"
#include "plan/costs.h"
#include "plan/gradients/buckets.h"
#include "plan/gradients/gathers.h"
#include "plan/gradients/matrix_work.h"
#include "plan/gradients/optimizer_shard.h"
#include "plan/model/activations.h"
#include "plan/model/form.h"
#include "plan/schedule/activation_slots.h"
#include "plan/schedule/schedule.h"
#include "plan/tables/layout.h"
#include "plan/tables/mesh.h"
#include "plan/tables/model.h"
#include "plan/tables/params.h"
#include "plan/tables/recompute_form.h"
#include "plan/tables/site.h"
#include "plan/tables/stage_map.h"

namespace trainctl {

struct RatePoint {  // of the preview: the update that follows `step` completed ones
  std::int64_t step = 0;
  double learning_rate = 0;
  double weight_decay = 0;
};

/// The tensors and actions of the ranks of one pipeline stage.
struct StagePlan {
  std::vector<UnitRange> units;  // per chunk
  StageForms forms;              // the parts of them that are repeated before B
  std::vector<ParamSpec> parameters;
  std::vector<OptimizerShard> shards;  // per parameter
  std::vector<MatrixWork> matrices;    // whose updates need them whole
  FlatBuffer flat;
  std::vector<BucketSum> sums;  // per bucket
  Ring gradient_ring;           // elements, of buckets that are summed repeatedly
  std::vector<GatherBlock> gathers;
  std::vector<ReadBlock> reads;  // the same, as the schedule sees them
  Ring weight_ring;              // bytes, of blocks that are freed
  std::vector<ActivationSpec> activations;
  DeclaredRows declared;  // where in it the rows of layers lie
  ActivationSlots activation_slots;
  std::vector<Action> schedule;  // rows of whole chunks
  std::vector<Action> actions;   // refined: what the executor runs
  // Refined rows of one forward pass in view 0. All weights that are not freed after use are there.
  std::vector<Action> forward_actions;
  Deferral deferral;
  int warmup = 0;  // forwards before the first backward
  int slots = 1;   // micro-batches in flight, of one chunk
  MemoryEstimate memory;
  std::vector<CollectiveUse> communication;
};

struct Plan {
  Mesh mesh;
  ParallelMode mode = ParallelMode::stand_alone;
  ModelShape model;
  EndShape local;
  ContextSplits context;  // how the ranks of a context-parallel group share attention
  TokenPieces tokens;     // of every sequence, over the same ranks
  // Above 0, micro-batches may be shorter, by multiples of this (resolve_length_step); sizes in the
  // plan are of the longest.
  std::int64_t length_step = 0;
  std::int64_t head_tokens = 0;  // whose logits exist at a time
  bool watches_scores = false;   // of attention's queries: log.max_attention_logit, qk-clip
  DType compute = DType::f32;
  DeviceKind device = DeviceKind::cpu;
  std::optional<AttentionExtents> cudnn;  // what cuDNN computes; none: our kernels do
  bool sequence_parallel = false;
  OperatorSplits splits;    // of operators over tensor-parallel ranks
  ExchangeRule exchange;    // between ranks that hold different experts
  TensorOverlap overlap;    // collectives of tensor-parallel ranks that overlap products
  bool fp32_sums = false;   // activations of 16 bits are cast to fp32 to be summed over tp or etp
  bool full_batch = false;  // every replica is fed the micro-batches of all
  bool broadcast_parameters = false;  // initial parameters come from the first replica
  GradientRule gradient;
  DType matrix_products = DType::f32;         // in which updates of whole matrices are made
  OptimizerLevel optimizer_level = "level1";  // what the parallel optimizer divides
  std::int64_t micro_batch_size = 0;
  std::int64_t microbatches = 0;  // per rank and step, of the full batch
  std::vector<RampPart> ramp;     // the batches of all steps, or of those that follow the ones done
  // For the steps of a ramp, one plan for each smaller number of micro-batches: the same except for
  // rows, places of activations, and what follows from them. They hold no others.
  std::vector<Plan> smaller;
  int threads_per_rank = 1;
  bool ranks_are_threads = false;
  bool cuda_graphs = false;   // a step is captured once as a graph of the device
  bool graphs_asked = false;  // by the configuration: what prevents them in a run is told
  DeviceSharing share_devices = DeviceSharing::none;  // of CUDA devices
  int product_sm_margin = 0;  // multiprocessors that products leave to collectives
  std::string schedule;       // see schedule_name
  int group_size = 1;         // microbatch_group_size_per_vp_stage
  bool late_weights = false;  // W comes behind the message with what its B made
  MessageRules messages;
  DType message_dtype = DType::f32;  // of what stages send
  bool result_broadcast = false;     // what the last stage finds out goes to all stages
  StageMap map;
  std::vector<StagePlan> stages;
  double bubble_fraction = 0;  // idle share of the step, F : B : W = 1 : 1 : 1 per layer, no wire
  FlopsEstimate flops;
  std::optional<TimeEstimate> time;  // where section cluster has a device, or rates
  std::optional<double> device_gib;  // memory of cluster.device
  std::int64_t steps = 0;
  RunLength length;              // of which the steps are
  std::vector<RatePoint> rates;  // at the corners of the schedule and between them
  std::uint64_t hash = 0;

  std::int64_t tokens_per_step() const;
  /// The plan of the step that follows `completed` ones: this plan, or one of `smaller`.
  const Plan& after(std::int64_t completed) const;
  Plan at_length(std::int64_t length) const;  // sizes and traffic of shorter sequences, not rows
  LocalShape local_of(int unit) const;        // of a block
  LayerForm form_of(int unit) const { return layer_form(model, unit - 1); }  // of a block
  LayerShare share_of(int unit) const;                                       // of a block
  MeshShare mesh_share() const { return {mesh, micro_batch_size, sequence_parallel}; }
  Layout stream() const { return sequence_parallel ? Layout::tokens : Layout::invariant; }
  std::int64_t activation_bytes(int stage) const;  // of a rank, with any number of micro-batches
  std::int64_t host_bytes(int stage) const;        // the same of what is kept on the host
  std::int64_t scratch_bytes() const;              // of a rank's operations
  /// Sequences of a micro-batch as a rank is fed it, of which it works on micro_batch_size.
  std::int64_t fed_sequences() const { return micro_batch_size * (full_batch ? mesh.dp : 1); }
  std::int64_t parameter_count() const;  // of the whole model, each once
  /// Counts only the parameters that a token meets: of the experts only those that it chooses.
  std::int64_t active_parameter_count() const;
  const MemoryEstimate& max_memory() const;  // of the stage that needs most
  int units() const { return all_units(model.layers).end; }
  const StagePlan& stage_of(std::int64_t rank) const {
    return stages[static_cast<std::size_t>(mesh.coordinate(rank, Axis::pp))];
  }
};

/// The ranks of this rank's pipeline that hold the embedding and the head: two, or one that holds
/// both.
std::vector<int> embedding_homes(const Plan& plan, std::int64_t rank);

/// How often a row of `kind` about `bucket` (or block) comes in a step of the stage.
std::int64_t visits_of(const StagePlan& stage, ActionKind kind, int bucket);

/// Whether weights of the stage come before a unit reads them and are freed after.
bool frees_weights(const StagePlan& stage);

ScheduleInput schedule_input(const Plan& plan, int stage);  // of its generator and refinement
ScheduleInput forward_input(const Plan& plan, int stage);   // the same of a forward pass

/// Whether the head's weight gradient is deferred for the micro-batches of a view: no other keeps a
/// slot of theirs.
bool defers_in_view(const StagePlan& stage, int view);

/// Whether the micro-batches of a view keep more of `unit` than others (StageForms::partial).
bool partial_in_view(const StagePlan& stage, int view, int unit);

/// The rows between the units of `rows`, which is stage number `stage` of the plan or of
/// Plan::smaller, for the micro-batches of a view. Both must outlive it.
ChunkRows rows_in_view(const Plan& plan, const StagePlan& rows, int stage, int view);

/// How `unit` keeps the micro-batches of a view.
BlockForm form_in_view(const StagePlan& stage, int view, int unit);

/// How the ranks tell each other the largest score of each head of attention
/// (optimizer.qk_clip_threshold): each sends a row of heads for every layer of its stage, filled
/// up to the number of layers of the largest stage. Returns layers of the model, in the order of
/// their rows.
std::vector<std::int64_t> scored_layers(const Plan& plan, const StagePlan& stage);
/// Numbers of 4 bytes that each rank sends of these scores.
std::int64_t scores_of_rank(const Plan& plan);

}  // namespace trainctl
