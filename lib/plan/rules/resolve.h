// The sizes that follow from a configuration: the one place where a value that was not given is
// derived. Nothing is checked here (plan/rules/check.h does that); uneven quotients are rounded
// down.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "config/schema/config.h"
#include "config/support/batch_ramp.h"
#include "plan/tables/layout.h"
#include "plan/tables/mesh.h"
#include "plan/tables/params.h"
#include "plan/tables/site.h"
#include "plan/tables/splits.h"

namespace trainctl {

/// parallel.parallel_mode if given. Otherwise hybrid_parallel with tensor, context, pipeline or
/// expert parallelism, data_parallel with more than one rank, else stand_alone.
ParallelMode resolve_mode(const ParallelConfig& parallel, std::int64_t world_size);
/// Whether the mode uses the model-parallel sizes; stand_alone and data_parallel do not.
bool mode_splits_model(ParallelMode mode);
/// The grid of ranks; the data-parallel size is the world size divided by the other sizes.
Mesh resolve_mesh(const ParallelConfig& parallel, std::int64_t world_size);
/// World size if no launcher gives one: device_num, else the product of the sizes with
/// data_parallel, else the smallest that dense and expert sizes both divide. At most 2^24 + 1.
std::int64_t world_size_of(const ParallelConfig& parallel);

/// The section for one rank: sizes and placement at their defaults, the rest as given.
ParallelConfig for_one_rank(ParallelConfig parallel);

/// The type of the matrix products: autocast_dtype under enable_autocast, else compute. Neither is
/// that of the masters (Megatron-Core: enable_autocast, autocast_dtype).
ComputeType resolve_compute(const PrecisionConfig& precision);

struct BatchSizes {
  std::int64_t micro_batch_size = 0;  // sequences
  std::int64_t microbatches = 0;      // per rank and step, of the full batch
  std::vector<RampPart> ramp{};       // the batches of all steps
  /// Sequences of one micro-batch of every replica: a batch is a multiple of it.
  std::int64_t unit(const Mesh& mesh) const { return micro_batch_size * mesh.dp; }
};
/// If not given: one micro-batch per rank, or micro-batches of one sequence with pipeline stages.
/// With a ramp, one micro-batch has what all of its batches are multiples of. `done`: the batches
/// of a run that is resumed, whose ramp begins there.
BatchSizes resolve_batch(const TrainConfig& train, const Mesh& mesh, BatchesDone done = {});

/// The type in which gradients are added up: optimizer.main_grads_dtype.
DType type_of_gradients(const OptimizerConfig& optimizer);
/// That in which matrices are kept (ParamSpec::master): optimizer.main_params_dtype.
DType type_of_masters(const OptimizerConfig& optimizer);
/// The type that muon.ns_dtype means, where products of layers are in `compute`.
DType resolve_muon_products(const MuonConfig& muon, DeviceKind device, DType compute);
/// The types of the values that an optimizer of these settings keeps of an element (kept_states).
std::vector<DType> optimizer_values(OptimizerType type, const OptimizerConfig& optimizer);
/// Bytes of one element in a checkpoint: its master and the optimizer's values.
std::int64_t saved_value_bytes(const ParamSpec& parameter, const OptimizerConfig& optimizer);

/// Whether tokens may have no loss, so that the loss is divided by the number of those that do.
bool masks_tokens(const DataConfig& data);
/// Plan::length_step: 0 without variable_seq_lengths, with experts, and where every sequence has
/// seq_length tokens. Otherwise the least multiple of 8 that splits sequences evenly over context-
/// and tensor-parallel ranks.
std::int64_t resolve_length_step(const Config& config, const Mesh& mesh);

/// Whether all ranks meet before each timed phase (Megatron-Core: barrier_with_L1_time).
bool meets_for_timers(const Config& config);

/// Which numbers all ranks share in a step besides the loss and the gradient norm.
struct StepNumbers {
  bool loss_weights = false;     // masks_tokens
  bool timer_barriers = false;   // meets_for_timers
  bool attention_logit = false;  // log.max_attention_logit
  bool qk_clip = false;          // optimizer.qk_clip_threshold
};
StepNumbers step_numbers(const Config& config);

/// The sections that say how parameters and kept activations move in a step.
struct MoveConfig {
  const RecomputeConfig& recompute;
  const OffloadConfig& offload;
  const HooksConfig& hooks;
  const ParallelConfig& parallel;
};
/// `config` must outlive it.
MoveConfig move_config(const Config& config);

/// Whether W comes behind the message with what its B made (delay_wgrad_compute). Only stages send
/// such messages, and some schedules place W themselves.
bool puts_weights_late(const ParallelConfig& parallel, const Mesh& mesh);
/// The overlap that tp_comm_overlap switches on (Megatron-Core's and Transformer Engine's rules):
/// disable_qkv and disable_fc1 are of ag and rs_dgrad only; rs_dgrad takes the place of bulk_dgrad
/// and bulk_wgrad. Where W comes apart, bulk_wgrad overlaps nothing.
TensorOverlap resolve_tensor_overlap(const ParallelConfig& parallel, const Mesh& mesh);
/// With group_wise_a2a, or where experts are cut otherwise than dense layers, each tensor-parallel
/// rank sends its own share of the tokens.
ExchangeRule resolve_exchange(const Config& config, const Mesh& mesh);

/// Splits of operators over tp. Only semi_auto_parallel splits them otherwise than by features; the
/// embedding and the head then as vocab_emb_dp says, if nothing else does. A word or list that
/// cannot be read, which is an error, counts as features.
OperatorSplits resolve_splits(const Config& config, ParallelMode mode, const Mesh& mesh);

BucketRule resolve_bucket_rule(const ParallelConfig& parallel);
/// The values that the parallel optimizer divides: optimizer_level if given, otherwise level2 with
/// gradient_accumulation_shard, but level1 where it divides buckets, as upstream. level1 where it
/// is off.
OptimizerLevel resolve_optimizer_level(const ParallelConfig& parallel);
/// The device of a word that check_batch accepts: auto is what the site says.
DeviceKind resolve_device(const ParallelConfig& parallel, const Site& site);
/// Whether steps become graphs of the device (parallel.cuda_graphs), if they can: auto means those
/// of one rank.
bool wants_graphs(const ParallelConfig& parallel, const Mesh& mesh);
/// Why a step cannot be one: what is not the same in every step, or where the host takes part.
/// Empty: it can.
std::string why_no_graphs(const Config& config, const Site& site, const Mesh& mesh);
/// Model chunks per stage: virtual_pipeline_stages, or the number that pipeline.layout implies.
std::int64_t resolve_chunks(const ParallelConfig& parallel, ParallelMode mode);

/// The factor on the loss that keeps small gradients within the range of fp16, and how it changes
/// from step to step. A constant scale has growth and backoff 1; without loss scaling the scale is
/// the constant 1.
struct LossScaling {
  bool on = false;
  double initial = 1;
  double least = 1;
  double growth = 1;
  double backoff = 1;
  std::int64_t window = 1;
  std::int64_t hysteresis = 1;

  bool dynamic() const { return backoff < 1; }
  bool operator==(const LossScaling&) const = default;
};

/// The loss scaling that the configuration asks for, with all defaults filled in.
LossScaling resolve_loss_scaling(const Config& config);

}  // namespace trainctl
