// Derives the sizes and types that a configuration leaves open; no other code does. Nothing is
// checked here (see plan/rules/check.h), and uneven quotients are rounded down.
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
/// Whether the mode uses the sizes of model parallelism; stand_alone and data_parallel do not.
bool mode_splits_model(ParallelMode mode);
/// The grid of ranks; the data-parallel size is the world size divided by the other sizes.
Mesh resolve_mesh(const ParallelConfig& parallel, std::int64_t world_size);
/// The world size if no launcher sets one: device_num, else the product of the sizes if
/// data_parallel is given, else the smallest that dense and expert sizes divide. At most 2^24 + 1.
std::int64_t world_size_of(const ParallelConfig& parallel);

/// The section for one rank: sizes and placement have their defaults, other values are unchanged.
ParallelConfig for_one_rank(ParallelConfig parallel);

/// The dtype of matrix products: autocast_dtype with enable_autocast, else compute. The dtype of
/// masters is separate (Megatron-Core: enable_autocast, autocast_dtype).
ComputeType resolve_compute(const PrecisionConfig& precision);

struct BatchSizes {
  std::int64_t micro_batch_size = 0;  // sequences per micro-batch of a replica
  std::int64_t microbatches = 0;      // number per rank and step, for the full batch
  std::vector<RampPart> ramp{};       // batch sizes of all steps
  /// The number of sequences in one micro-batch of every replica, of which a batch is a multiple.
  std::int64_t unit(const Mesh& mesh) const { return micro_batch_size * mesh.dp; }
};
/// Sizes that are not given: one micro-batch per rank, or with pipeline stages micro-batches of one
/// sequence. With a ramp, the size of a micro-batch must divide all its batches. A resumed
/// run has done some steps and samples, from which its ramp continues.
BatchSizes resolve_batch(const TrainConfig& train, const Mesh& mesh, std::int64_t steps_done = 0,
                         std::int64_t samples_done = 0);

/// The dtype in which gradients are accumulated: optimizer.main_grads_dtype.
DType type_of_gradients(const OptimizerConfig& optimizer);
/// The dtype of master matrices (ParamSpec::master): optimizer.main_params_dtype.
DType type_of_masters(const OptimizerConfig& optimizer);
/// The dtype that muon.ns_dtype selects if products of layers have the dtype `compute`.
DType resolve_muon_products(const MuonConfig& muon, DeviceKind device, DType compute);
/// The dtypes of the optimizer's values for each element (kept_states).
std::vector<DType> optimizer_values(OptimizerType type, const OptimizerConfig& optimizer);
/// Bytes of one parameter element in a checkpoint: its master and the optimizer's values.
std::int64_t saved_value_bytes(const ParamSpec& parameter, const OptimizerConfig& optimizer);

/// Whether some tokens may have no loss, so the loss is divided by the number of tokens with loss.
bool masks_tokens(const DataConfig& data);
/// Plan::length_step: 0 without variable_seq_lengths, or if every sequence has seq_length tokens.
/// Otherwise the smallest multiple of 8 that divides sequences evenly over context- and
/// tensor-parallel ranks and into routing groups.
std::int64_t resolve_length_step(const Config& config, const Mesh& mesh);

/// Whether all ranks synchronise before each timed phase (Megatron-Core: barrier_with_L1_time).
bool meets_for_timers(const Config& config);

/// Which numbers all ranks exchange in a step besides the loss and the gradient norm.
struct StepNumbers {
  bool loss_weights = false;     // see masks_tokens()
  bool timer_barriers = false;   // see meets_for_timers()
  bool attention_logit = false;  // for log.max_attention_logit
  bool qk_clip = false;          // for optimizer.qk_clip_threshold
};
StepNumbers step_numbers(const Config& config);

/// The sections that decide how parameters and kept activations are moved in a step.
struct MoveConfig {
  const RecomputeConfig& recompute;
  const OffloadConfig& offload;
  const HooksConfig& hooks;
  const ParallelConfig& parallel;
};
/// `config` must outlive the result.
MoveConfig move_config(const Config& config);

/// Whether W comes after the message with the input gradient of its B (delay_wgrad_compute). Only
/// stages send such messages, and some schedules place W themselves.
bool puts_weights_late(const ParallelConfig& parallel, const Mesh& mesh);
/// The overlap that tp_comm_overlap enables (rules of Megatron-Core and Transformer Engine).
/// disable_qkv and disable_fc1 affect only ag and rs_dgrad; rs_dgrad replaces bulk_dgrad and
/// bulk_wgrad. If W is separate from B, bulk_wgrad has no effect.
TensorOverlap resolve_tensor_overlap(const ParallelConfig& parallel, const Mesh& mesh);
/// With group_wise_a2a, or if experts are split over other ranks than dense layers, each
/// tensor-parallel rank sends its own share of the tokens.
ExchangeRule resolve_exchange(const Config& config, const Mesh& mesh);

/// Splits of operators over tp. Only semi_auto_parallel allows splits other than by features;
/// there, vocab_emb_dp decides for the embedding and the head if operator_splits does not. A word
/// or list that is invalid, which is an error, counts as features.
OperatorSplits resolve_splits(const Config& config, ParallelMode mode, const Mesh& mesh);

BucketRule resolve_bucket_rule(const ParallelConfig& parallel);
/// The values that the parallel optimizer shards: optimizer_level if given; otherwise level2 with
/// gradient_accumulation_shard, but level1 if whole buckets are sharded, as upstream does. level1
/// if the parallel optimizer is off.
OptimizerLevel resolve_optimizer_level(const ParallelConfig& parallel);
/// The device of a word that check_batch accepts; auto is the device of `site`.
DeviceKind resolve_device(const ParallelConfig& parallel, const Site& site);
/// Whether steps should run as CUDA graphs (parallel.cuda_graphs); auto means yes with one rank.
bool wants_graphs(const ParallelConfig& parallel, const Mesh& mesh);
/// Why a step cannot run as a graph: values that differ from step to step, or work of the host.
/// Empty if it can.
std::string why_no_graphs(const Config& config, const Site& site, const Mesh& mesh);
/// Number of model chunks per stage: virtual_pipeline_stages, or as pipeline.layout implies.
std::int64_t resolve_chunks(const ParallelConfig& parallel, ParallelMode mode);

/// The factor of the loss that keeps small gradients within the range of fp16, and its changes from
/// step to step. A constant scale has growth and backoff 1; without loss scaling it is 1.
struct LossScaling {
  bool on = false;
  double initial = 1, least = 1, growth = 1, backoff = 1;
  std::int64_t window = 1, hysteresis = 1;

  bool dynamic() const { return backoff < 1; }
  bool operator==(const LossScaling&) const = default;
};

/// The configured loss scaling, with all defaults filled in.
LossScaling resolve_loss_scaling(const Config& config);

}  // namespace trainctl
