// All decisions made before a process starts, as one printable value. Every rank computes the same
// Plan from the same YAML and compares its hash before the first step. Planning uses no MPI, CUDA,
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

struct RatePoint {  // for display: rates of the update after `step` completed ones
  std::int64_t step = 0;
  double learning_rate = 0, weight_decay = 0;
};

/// The tensors and actions of the ranks of one pipeline stage.
struct StagePlan {
  std::vector<UnitRange> units;  // units of each chunk
  StageForms forms;              // parts of layers that are recomputed before B
  std::vector<ParamSpec> parameters;
  std::vector<OptimizerShard> shards;  // shard of each parameter
  std::vector<MatrixWork> matrices;    // matrices whose update needs all elements
  FlatBuffer flat;
  std::vector<BucketSum> sums;  // sums of each bucket
  Ring gradient_ring;           // memory for buckets that are summed repeatedly, in elements
  std::vector<GatherBlock> gathers;
  Ring weight_ring;  // memory for blocks that are freed, in bytes
  std::vector<ActivationSpec> activations;
  DeclaredRows declared;  // indices in `activations` of the layers' rows
  ActivationSlots activation_slots;
  std::vector<Action> schedule;  // rows of whole chunks
  std::vector<Action> actions;   // refined rows, which the executor runs
  // Refined rows of one forward pass in view 0. Weights that are not freed must already be present.
  std::vector<Action> forward_actions;
  Deferral deferral;
  int warmup = 0;  // number of forwards before the first backward
  int slots = 1;   // most micro-batches of one chunk in flight
  MemoryEstimate memory;
  std::vector<CollectiveUse> communication;
};

struct Plan {
  Mesh mesh;
  ParallelMode mode = ParallelMode::stand_alone;
  ModelShape model;
  EndShape local;
  ContextSplits context;  // how context-parallel ranks share attention
  TokenPieces tokens;     // tokens of a sequence on each context-parallel rank
  // If above 0, micro-batches may be shorter by multiples of this number (resolve_length_step).
  // Sizes in the plan are those of the longest.
  std::int64_t length_step = 0;
  std::int64_t head_tokens = 0;  // number of tokens whose logits exist at a time
  bool watches_scores = false;   // largest score per head is kept: log.max_attention_logit, qk-clip
  DType compute = DType::f32;
  DeviceKind device = DeviceKind::cpu;
  std::optional<AttentionExtents> cudnn;  // attention shapes, if cuDNN computes attention
  bool sequence_parallel = false;
  OperatorSplits splits;              // splits of operators over tensor-parallel ranks
  ExchangeRule exchange;              // exchange between ranks with different experts
  TensorOverlap overlap;              // collectives of tensor-parallel ranks that overlap products
  bool fp32_sums = false;             // 16-bit activations are summed over tp or etp in fp32
  bool full_batch = false;            // every replica reads the micro-batches of all replicas
  bool broadcast_parameters = false;  // initial parameters come from the first replica
  GradientRule gradient;
  DType matrix_products = DType::f32;         // dtype of products in updates of whole matrices
  OptimizerLevel optimizer_level = "level1";  // values that are sharded
  std::int64_t micro_batch_size = 0;
  std::int64_t microbatches = 0;  // number per rank and step, for the full batch
  std::vector<RampPart> ramp;     // batch sizes of all steps, or of the remaining steps
  // For the steps of a ramp, one plan for each smaller number of micro-batches. They differ only in
  // rows, places of activations and costs. Their `smaller` is empty.
  std::vector<Plan> smaller;
  int threads_per_rank = 1;
  bool ranks_are_threads = false;
  bool cuda_graphs = false;   // a step is captured once as a CUDA graph
  bool graphs_asked = false;  // the configuration requires graphs; a run reports why none
  DeviceSharing share_devices = DeviceSharing::none;  // sharing of CUDA devices
  int product_sm_margin = 0;  // multiprocessors that products leave to collectives
  std::string schedule;       // see schedule_name()
  int group_size = 1;         // see microbatch_group_size_per_vp_stage
  bool late_weights = false;  // W comes after the message with the input gradient of its B
  MessageRules messages;
  DType message_dtype = DType::f32;  // dtype of messages between stages
  bool result_broadcast = false;     // results of the last stage are sent to all stages
  StageMap map;
  std::vector<StagePlan> stages;
  double bubble_fraction = 0;  // idle share of a step with F : B : W = 1 : 1 : 1 and free messages
  FlopsEstimate flops;
  std::optional<TimeEstimate> time;  // set if section cluster has a device, or rates
  std::optional<double> device_gib;  // memory of cluster.device
  std::int64_t steps = 0;
  RunLength length;              // length of the run from which `steps` follows
  std::vector<RatePoint> rates;  // preview, at the corners of the schedule and between them
  std::uint64_t hash = 0;

  std::int64_t tokens_per_step() const;
  /// The plan for the step after `completed` ones: this plan, or one of `smaller`.
  const Plan& after(std::int64_t completed) const;
  Plan at_length(std::int64_t length) const;  // sizes and traffic of shorter sequences; no rows
  LocalShape local_of(int unit) const;        // share of a block
  LayerForm form_of(int unit) const { return layer_form(model, unit - 1); }  // share of a block
  LayerShare share_of(int unit) const;                                       // share of a block
  MeshShare mesh_share() const { return {mesh, micro_batch_size, sequence_parallel}; }
  Layout stream() const { return sequence_parallel ? Layout::tokens : Layout::invariant; }
  std::int64_t activation_bytes(int stage) const;  // bytes on a rank, with the most micro-batches
  std::int64_t host_bytes(int stage) const;        // bytes in host memory, as above
  std::int64_t scratch_bytes() const;              // bytes of scratch of a rank's operations
  /// Number of sequences in a micro-batch that a rank reads; it trains on micro_batch_size.
  std::int64_t fed_sequences() const { return micro_batch_size * (full_batch ? mesh.dp : 1); }
  std::int64_t parameter_count() const;  // count of the whole model, each parameter once
  /// Counts only the parameters that a token uses: of experts, only the chosen ones.
  std::int64_t active_parameter_count() const;
  const MemoryEstimate& max_memory() const;  // memory of the stage that needs the most
  int units() const { return all_units(model.layers).end; }
  const StagePlan& stage_of(std::int64_t rank) const {
    return stages[static_cast<std::size_t>(mesh.coordinate(rank, Axis::pp))];
  }
};

/// The ranks of this rank's pipeline that hold the embedding and the head: two ranks, or one.
std::vector<int> embedding_homes(const Plan& plan, std::int64_t rank);

/// The number of rows of `kind` for `bucket` (or block) in a step of the stage.
std::int64_t visits_of(const StagePlan& stage, ActionKind kind, int bucket);

/// Whether some weights of the stage are gathered before a unit reads them and freed after.
bool frees_weights(const StagePlan& stage);

ScheduleInput schedule_input(const Plan& plan, int stage);  // for generators and refine()
ScheduleInput forward_input(const Plan& plan, int stage);   // for a forward pass only

/// Whether the head's weight gradient is deferred for the micro-batches of a view; these do not
/// share slots with others.
bool defers_in_view(const StagePlan& stage, int view);

/// Whether the micro-batches of a view keep more of `unit` than others (StageForms::partial).
bool partial_in_view(const StagePlan& stage, int view, int unit);

/// The rows between the units of `rows`, which is stage number `stage` of the plan or of
/// Plan::smaller, for the micro-batches of a view. `plan` and `rows` must outlive the result.
ChunkRows rows_in_view(const Plan& plan, const StagePlan& rows, int stage, int view);

/// How `unit` keeps activations for the micro-batches of a view.
BlockForm form_in_view(const StagePlan& stage, int view, int unit);

/// The layers whose attention scores a rank sends (optimizer.qk_clip_threshold): the largest score
/// of each head, one row of heads per layer of its stage, padded to the number of layers of the
/// largest stage. Returns layers of the model, in the order of their rows.
std::vector<std::int64_t> scored_layers(const Plan& plan, const StagePlan& stage);
/// The number of scores, of 4 bytes, that each rank sends.
std::int64_t scores_of_rank(const Plan& plan);

}  // namespace trainctl
