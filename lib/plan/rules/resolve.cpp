#include "plan/rules/resolve.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "config/schema/optimizers.h"
#include "config/schema/words.h"
#include "plan/rules/check.h"
#include "plan/rules/place_layers.h"
#include "plan/tables/layout.h"
#include "plan/tables/model.h"

namespace trainctl {

namespace {

constexpr std::int64_t too_many_ranks = (std::int64_t{1} << 24) + 1;

/// The product of sizes, at most too_many_ranks.
std::int64_t ranks_of(std::initializer_list<std::int64_t> sizes) {
  std::int64_t ranks = 1;
  for (const std::int64_t size : sizes) {
    if (size > too_many_ranks / ranks) return too_many_ranks;
    ranks *= size;
  }
  return ranks;
}

}  // namespace

ParallelMode resolve_mode(const ParallelConfig& parallel, std::int64_t world_size) {
  if (parallel.parallel_mode) return *parallel.parallel_mode;
  const bool splits = parallel.tensor_parallel > 1 || parallel.context_parallel > 1 ||
                      parallel.pipeline_stages > 1 || parallel.expert_parallel > 1;
  // Options that data_parallel ignores.
  const bool asks = !parallel.gradient_fp32_sync || !parallel.loss_repeated_mean ||
                    !(parallel.dataset_strategy == DatasetSplit{});
  if (splits) return ParallelMode::hybrid_parallel;
  if (world_size > 1 && asks) return ParallelMode::hybrid_parallel;
  return world_size > 1 ? ParallelMode::data_parallel : ParallelMode::stand_alone;
}

bool mode_splits_model(ParallelMode mode) {
  return mode != ParallelMode::stand_alone && mode != ParallelMode::data_parallel;
}

Mesh resolve_mesh(const ParallelConfig& parallel, std::int64_t world_size) {
  Mesh mesh;
  if (mode_splits_model(resolve_mode(parallel, world_size))) {
    mesh.tp = std::max<std::int64_t>(1, parallel.tensor_parallel);
    mesh.cp = std::max<std::int64_t>(1, parallel.context_parallel);
    mesh.pp = std::max<std::int64_t>(1, parallel.pipeline_stages);
    mesh.ep = std::max<std::int64_t>(1, parallel.expert_parallel);
    mesh.etp = std::max<std::int64_t>(1, parallel.expert_tensor_parallel.value_or(mesh.tp));
  }
  mesh.dp = std::max<std::int64_t>(1, world_size / ranks_of({mesh.tp, mesh.cp, mesh.pp}));
  mesh.edp = std::max<std::int64_t>(1, world_size / ranks_of({mesh.etp, mesh.ep, mesh.pp}));
  std::vector<Axis> appended;
  if (const auto order = parse_order(parallel.rank_order, appended)) mesh.order = *order;
  return mesh;
}

DeviceKind resolve_device(const ParallelConfig& parallel, const Site& site) {
  if (parallel.device == "auto") return site.device;
  return parallel.device == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
}

std::int64_t world_size_of(const ParallelConfig& parallel) {
  if (parallel.device_num) return std::max<std::int64_t>(1, *parallel.device_num);
  const Mesh one = resolve_mesh(parallel, 1);
  const std::int64_t dense = ranks_of({one.tp, one.cp, one.pp});
  if (parallel.data_parallel) {
    return ranks_of({dense, std::max<std::int64_t>(1, *parallel.data_parallel)});
  }
  const std::int64_t expert = ranks_of({one.etp, one.ep, one.pp});  // must also divide
  return std::min(too_many_ranks, std::lcm(dense, expert));
}

ParallelConfig for_one_rank(ParallelConfig parallel) {
  const ParallelConfig usual;
  parallel.parallel_mode.reset();
  parallel.device_num.reset();
  parallel.global_rank = usual.global_rank;
  parallel.data_parallel.reset();
  parallel.tensor_parallel = usual.tensor_parallel;
  parallel.sequence_parallel = usual.sequence_parallel;
  parallel.context_parallel = usual.context_parallel;
  parallel.hierarchical_context_parallel_sizes.reset();
  parallel.expert_parallel = usual.expert_parallel;
  parallel.expert_tensor_parallel.reset();
  parallel.pipeline_stages = usual.pipeline_stages;
  parallel.virtual_pipeline_stages = usual.virtual_pipeline_stages;
  parallel.pipeline = usual.pipeline;
  parallel.parallel_optimizer = usual.parallel_optimizer;
  parallel.tp_comm_overlap = usual.tp_comm_overlap;
  parallel.operator_splits = usual.operator_splits;
  parallel.delay_wgrad_compute = usual.delay_wgrad_compute;
  parallel.vocab_emb_dp.reset();
  return parallel;
}

ComputeType resolve_compute(const PrecisionConfig& precision) {
  if (!precision.enable_autocast) return precision.compute;
  return precision.autocast_dtype.value_or(precision.compute);
}

namespace {

/// The greatest common divisor of all batch sizes.
std::int64_t common_part(const TrainConfig& train) {
  const bool ramps = train.rampup_batch_size && !problem_of_ramp(train);
  if (!ramps) return train.global_batch_size;
  const IntList& ramp = *train.rampup_batch_size;
  return std::gcd(train.global_batch_size, std::gcd(ramp[0], ramp[1]));
}

}  // namespace

BatchSizes resolve_batch(const TrainConfig& train, const Mesh& mesh, std::int64_t steps_done,
                         std::int64_t samples_done) {
  const std::int64_t local = std::max<std::int64_t>(1, train.global_batch_size / mesh.dp);
  BatchSizes sizes;
  if (train.micro_batch_size) {
    sizes.micro_batch_size = *train.micro_batch_size;
  } else if (train.micro_batch_num) {
    sizes.micro_batch_size = local / *train.micro_batch_num;
  } else {
    sizes.micro_batch_size = mesh.pp > 1 ? 1 : common_part(train) / mesh.dp;
  }
  sizes.micro_batch_size = std::max<std::int64_t>(1, sizes.micro_batch_size);
  sizes.microbatches = std::max<std::int64_t>(1, local / sizes.micro_batch_size);
  sizes.ramp = batch_ramp(train, sizes.unit(mesh), steps_done, samples_done);
  return sizes;
}

/// The dtype of stored values: fp32 or bf16.
DType type_of_state(ComputeType type) {
  return type == ComputeType::bf16 ? DType::bf16 : DType::f32;
}

DType type_of_gradients(const OptimizerConfig& optimizer) {
  return type_of_state(optimizer.main_grads_dtype);
}

DType type_of_masters(const OptimizerConfig& optimizer) {
  return type_of_state(optimizer.main_params_dtype);
}

DType resolve_muon_products(const MuonConfig& muon, DeviceKind device, DType compute) {
  const bool narrow = device == DeviceKind::cuda && size_of(compute) == 2;
  const bool automatic = muon.ns_dtype == "auto";
  const bool is_bf16 = automatic ? narrow : muon.ns_dtype == "bf16";
  return is_bf16 ? DType::bf16 : DType::f32;
}

std::vector<DType> optimizer_values(OptimizerType type, const OptimizerConfig& optimizer) {
  std::vector<DType> types;
  for (const OptimizerState& state : kept_states(type, optimizer)) {
    types.push_back(state.type == nullptr ? DType::f32 : type_of_state(optimizer.*state.type));
  }
  return types;
}

std::int64_t saved_value_bytes(const ParamSpec& parameter, const OptimizerConfig& optimizer) {
  std::int64_t bytes = size_of(parameter.master);
  for (const DType type : optimizer_values(parameter.update, optimizer)) bytes += size_of(type);
  return bytes;
}

bool masks_tokens(const DataConfig& data) { return data.eod_mask_loss || !data.packing; }

std::int64_t resolve_length_step(const Config& config, const Mesh& mesh) {
  const ParallelConfig& parallel = config.parallel;
  const bool varies = parallel.pipeline.variable_seq_lengths && !config.data.packing;
  if (!varies) return 0;
  constexpr std::int64_t multiple = 8;  // elements of a vector instruction
  const RecomputeConfig& recompute = config.recompute;
  const bool slices = recompute.enable && recompute.slice_activation;
  const TokenPieces tokens = token_layout(mesh.cp, 0);
  const OperatorSplits splits =
      resolve_splits(config, resolve_mode(parallel, mesh.world_size()), mesh);
  const ModelShape model = model_shape(config.model, config.moe);
  // With experts, tensor-parallel ranks may each send a slice of equal tokens.
  const bool cuts =
      parallel.sequence_parallel || slices || splits.any(SplitBy::tokens) || model.experts > 1;
  const std::int64_t parts = tokens.ranks * tokens.pieces() * (cuts ? mesh.tp : 1);
  std::int64_t step = std::lcm(parts, multiple);
  for (const std::int64_t group : {model.routing_group, model.capacity_group}) {
    const bool is_part = model.experts > 1 && group > 0 && group < model.seq_length;
    if (is_part) step = std::lcm(step, group);
  }
  return step;
}

bool meets_for_timers(const Config& config) {
  return config.hooks.timers && config.log.timer_level > 0 && config.log.barrier_with_timers;
}

StepNumbers step_numbers(const Config& config) {
  return {masks_tokens(config.data), meets_for_timers(config), config.log.max_attention_logit,
          config.optimizer.qk_clip_threshold.has_value()};
}

MoveConfig move_config(const Config& config) {
  return {config.recompute, config.offload, config.hooks, config.parallel};
}

bool puts_weights_late(const ParallelConfig& parallel, const Mesh& mesh) {
  const bool placed = traits_of(parallel.pipeline.scheduler).places_weights;
  return parallel.delay_wgrad_compute && mesh.pp > 1 && !placed;
}

TensorOverlap resolve_tensor_overlap(const ParallelConfig& parallel, const Mesh& mesh) {
  const TpCommOverlapConfig& said = parallel.tp_comm_overlap;
  if (!said.enable || !parallel.sequence_parallel || mesh.tp == 1) return {};
  const bool placed = mesh.pp > 1 && traits_of(parallel.pipeline.scheduler).places_weights;
  const bool apart = placed || puts_weights_late(parallel, mesh);
  const auto region = [&](bool disabled) {
    RegionOverlap one;
    one.gather = said.ag && !disabled;
    one.gather_back = said.ag;
    one.scatter = said.rs;
    one.scatter_back = said.rs_dgrad && !disabled;
    one.gather_again = said.bulk_dgrad && !one.scatter_back;
    one.scatter_whole = said.bulk_wgrad && !one.scatter_back && !apart;
    one.weights_in_back = !apart && (one.gather_again || one.scatter_whole);
    return one;
  };
  return {.attention = region(said.disable_qkv), .mlp = region(said.disable_fc1), .any = true};
}

ExchangeRule resolve_exchange(const Config& config, const Mesh& mesh) {
  const MoeConfig& moe = config.moe;
  ExchangeRule rule;
  if (moe.num_experts == 1) return rule;
  const bool shared = (moe.group_wise_a2a && mesh.ep > 1) || !cuts_experts_alike(mesh);
  rule.by_stream = shared && mesh.tp > 1 && config.parallel.sequence_parallel;
  rule.by_slice = shared && mesh.tp > 1 && !rule.by_stream;
  rule.parts = shared ? mesh.etp : 1;
  const bool exchanges = mesh.ep * rule.parts > 1;
  if (moe.comp_comm_parallel && exchanges) {
    rule.chunks = std::max<std::int64_t>(1, moe.comp_comm_parallel_degree);
  }
  rule.beside_passes = moe.overlap_expert_parallel_comm && mesh.ep > 1;
  return rule;
}

namespace {

/// The split of each layer; empty if all are by features.
std::vector<SplitBy> layer_splits(const std::optional<std::string>& text, std::int64_t layers) {
  if (!text) return {};
  ParsedList<SplitBy> read = parse_layer_splits(*text, layers);
  return read.error.empty() ? std::move(read.values) : std::vector<SplitBy>{};
}

}  // namespace

OperatorSplits resolve_splits(const Config& config, ParallelMode mode, const Mesh& mesh) {
  const ParallelConfig& parallel = config.parallel;
  OperatorSplits splits;
  if (mesh.tp == 1) return splits;
  splits = with_vocabulary(!parallel.vocab_emb_dp.value_or(false) ? SplitBy::features
                           : parallel.sequence_parallel           ? SplitBy::tokens
                                                                  : SplitBy::whole);
  if (mode != ParallelMode::semi_auto_parallel) return splits;
  const OperatorSplitsConfig& said = parallel.operator_splits;
  splits.moves_at_once = parallel.enable_alltoall;
  splits.embedding = said.embedding.value_or(splits.embedding);
  splits.head = said.head.value_or(splits.head);
  const std::int64_t layers = config.model.num_layers;
  const std::vector<SplitBy> attention = layer_splits(said.attention, layers);
  const std::vector<SplitBy> mlp = layer_splits(said.feed_forward, layers);
  if (attention.empty() && mlp.empty()) return splits;
  splits.blocks.resize(static_cast<std::size_t>(layers));
  for (std::size_t layer = 0; layer < splits.blocks.size(); ++layer) {
    if (!attention.empty()) splits.blocks[layer].attention = attention[layer];
    if (!mlp.empty()) splits.blocks[layer].feed_forward = mlp[layer];
  }
  return splits;
}

BucketRule resolve_bucket_rule(const ParallelConfig& parallel) {
  if (parallel.bucket_rule) return *parallel.bucket_rule;
  const CommFusionConfig& fusion = parallel.comm_fusion;
  const bool gathers = parallel.parallel_optimizer.enable && fusion.allgather.mode;
  if (!fusion.openstate || fusion.allreduce.mode || fusion.reducescatter.mode || gathers) {
    return BucketRule::comm_fusion;
  }
  return parallel.gradient_aggregation_group ? BucketRule::layers : BucketRule::size;
}

OptimizerLevel resolve_optimizer_level(const ParallelConfig& parallel) {
  const ParallelOptimizerConfig& optimizer = parallel.parallel_optimizer;
  const bool shard = optimizer.gradient_accumulation_shard &&
                     resolve_bucket_rule(parallel) != BucketRule::megatron;
  if (!optimizer.enable) return OptimizerLevel("level1");
  return optimizer.optimizer_level.value_or(shard ? OptimizerLevel("level2")
                                                  : OptimizerLevel("level1"));
}

std::int64_t resolve_chunks(const ParallelConfig& parallel, ParallelMode mode) {
  const std::int64_t stages = parallel.pipeline_stages;
  if (!mode_splits_model(mode) || stages <= 1) return 1;
  const std::optional<std::string>& layout_text = parallel.pipeline.layout;
  if (parallel.virtual_pipeline_stages > 1 || !layout_text || *layout_text == balanced_layout) {
    return std::max<std::int64_t>(1, parallel.virtual_pipeline_stages);
  }
  const ParsedList<std::string> layout = parse_stage_layout(*layout_text);
  const auto places = static_cast<std::int64_t>(layout.values.size());
  return std::max<std::int64_t>(1, places / stages);
}

bool wants_graphs(const ParallelConfig& parallel, const Mesh& mesh) {
  if (parallel.cuda_graphs != "auto") return parallel.cuda_graphs == "true";
  return mesh.world_size() == 1;
}

std::string why_no_graphs(const Config& config, const Site& site, const Mesh& mesh) {
  if (resolve_device(config.parallel, site) != DeviceKind::cuda) return "the device is the CPU";
  if (config.moe.num_experts > 1) {
    return "routers of experts decide in each step how many rows their products have";
  }
  if (resolve_length_step(config, mesh) > 0) {
    return "pipeline.variable_seq_lengths gives the micro-batches of each step other lengths";
  }
  if (config.offload.enable && config.offload.weights) {
    return "offload.weights makes the host decide where weights come from";
  }
  if (config.parallel.share_devices == DeviceSharing::nccl) {
    return "ranks that share a device over NCCL run row by row";
  }
  if (meets_for_timers(config)) return "log.barrier_with_timers lets the ranks meet within a step";
  return "";
}

LossScaling resolve_loss_scaling(const Config& config) {
  const PrecisionConfig& precision = config.precision;
  if (config.hooks.grad_scale == "none") return {};
  if (precision.loss_scale) {
    const double scale = *precision.loss_scale;
    return {.on = true, .initial = scale, .least = scale};
  }
  const bool narrow = resolve_compute(precision) == ComputeType::fp16;
  if (!precision.dynamic_loss_scale.value_or(narrow)) return {};
  return {.on = true,
          .initial = precision.initial_loss_scale,
          .least = precision.min_loss_scale,
          .growth = precision.loss_scale_growth,
          .backoff = precision.loss_scale_backoff,
          .window = precision.loss_scale_window,
          .hysteresis = precision.loss_scale_hysteresis};
}

}  // namespace trainctl
