#include "plan/prepare/make_plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/at.h"
#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"
#include "plan/cost/step_time.h"
#include "plan/generators/generators.h"
#include "plan/gradients/optimizer_shard.h"
#include "plan/prepare/hash.h"
#include "plan/prepare/pick_forms.h"
#include "plan/prices/machine.h"
#include "plan/rules/check.h"
#include "plan/rules/learning_rate.h"
#include "plan/rules/resolve.h"
#include "plan/schedule/simulate.h"

namespace trainctl {

namespace {

/// Proves the rows of all stages together and returns the bubble. Replicas have equal rows, as do
/// ranks that share layers, so two of each are enough. For devices, the proof is repeated with
/// their stricter queues.
double prove(const Plan& plan, SimulationInput simulation) {
  simulation.cost = [layers = plan.model.layers](const RankRows&, const Action& action) {
    return layer_cost(action, layers);
  };
  Simulation result = simulate(simulation);
  const double bubble = result.bubble_fraction;
  simulation.on_devices = plan.device == DeviceKind::cuda;
  simulation.hosts_meet = plan.share_devices == DeviceSharing::without_nccl;
  if (simulation.on_devices && result.violations.empty()) result = simulate(simulation);
  if (result.violations.empty()) return bubble;
  throw Error(ExitCode::internal,
              "the schedule breaks its own rules: " + result.violations.front() + " (" +
                  std::to_string(result.violations.size()) + " in all)");
}

void prove(Plan& plan) {
  plan.bubble_fraction = prove(plan, simulation_input(plan));
  prove(plan, forward_simulation(plan));
}

std::vector<RatePoint> preview_rates(const Config& config) {
  const std::int64_t steps = config.train.steps;
  const LrScheduleConfig& schedule = config.lr_schedule;
  const std::int64_t decay = schedule.decay_steps.value_or(steps);
  std::set<std::int64_t> at{
      0, steps / 4, steps / 2, steps - steps / 4, steps - 1, schedule.warmup_steps};
  if (schedule.style != LrStyle::constant) at.insert(decay);
  if (schedule.style == LrStyle::wsd) at.insert(decay - schedule.wsd_decay_steps.value_or(0));
  std::vector<RatePoint> points;
  for (std::int64_t step : at) {
    if (step < 0 || step >= steps) continue;
    points.push_back(RatePoint{step, learning_rate(schedule, steps, step),
                               weight_decay(config.optimizer, steps, step)});
  }
  return points;
}

int threads_of(const ParallelConfig& parallel, const Site& site) {
  const std::int64_t share = site.cores_per_host / std::max<std::int64_t>(1, site.ranks_per_host);
  return static_cast<int>(parallel.threads_per_rank.value_or(std::max<std::int64_t>(1, share)));
}

DType dtype_of(ComputeType type) {
  if (type == ComputeType::fp32) return DType::f32;
  return type == ComputeType::bf16 ? DType::bf16 : DType::f16;
}

/// Sets how stages exchange messages; one stage has none.
void set_messages(Plan& plan, const PipelineConfig& pipeline, std::int64_t chunks) {
  plan.message_dtype = plan.compute;
  if (plan.mesh.pp == 1) return;
  plan.result_broadcast = pipeline.result_broadcast;
  if (pipeline.dtype) plan.message_dtype = dtype_of(*pipeline.dtype);
  const ScheduleTraits& traits = traits_of(pipeline.scheduler);
  const bool in_batches = traits.batches && (chunks == 1 || !traits.apart);
  const bool batched = pipeline.batch_p2p_comm.value_or(!pipeline.overlap_p2p_comm && in_batches);
  // A ring exchange is a batch, regardless of the keys for single messages (Megatron-Core).
  const bool ring = pipeline.use_ring_exchange_p2p;
  plan.messages = {.mode = ring || batched             ? MessageMode::batched
                           : pipeline.overlap_p2p_comm ? MessageMode::overlapped
                                                       : MessageMode::single,
                   .keeps_outputs = !pipeline.deallocate_outputs,
                   .casts = plan.message_dtype != plan.compute};
}

/// An option that `mode` ignores has its default.
void set_data_rules(Plan& plan, const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const bool looks = mode_splits_model(plan.mode);
  const std::int64_t replicas = plan.mesh.dp * plan.mesh.cp;
  const bool wide = parallel.force_fp32_communication;
  plan.gradient.kept = type_of_gradients(config.optimizer);
  plan.gradient.buckets = resolve_bucket_rule(parallel);
  if (looks && !parallel.gradient_fp32_sync && !wide) plan.gradient.dtype = plan.compute;
  if (!parallel.gradients_mean.value_or(true)) plan.gradient.factor *= replicas;
  if (looks && !parallel.loss_repeated_mean) plan.gradient.factor *= plan.mesh.tp;
  plan.gradient.fused = parallel.gradient_accumulation_fusion.value_or(true);
  const bool sums = plan.mesh.tp > 1 || plan.exchange.parts > 1;
  plan.fp32_sums = wide && plan.compute != DType::f32 && sums;
  plan.full_batch = looks && parallel.dataset_strategy.word == "full_batch" && plan.mesh.dp > 1;
  plan.broadcast_parameters = parallel.parameter_broadcast && replicas > 1;
  const StepNumbers numbers = step_numbers(config);
  plan.watches_scores = numbers.attention_logit || numbers.qk_clip;
}

Plan sizes_of(const Facts& facts) {
  const Config& config = facts.config;
  const ParallelConfig& parallel = config.parallel;
  Plan plan;
  plan.mode = facts.mode;
  plan.ranks_are_threads = facts.site.ranks_are_threads;
  plan.mesh = facts.mesh;
  plan.model = facts.model;
  plan.compute = dtype_of(resolve_compute(config.precision));
  set_messages(plan, parallel.pipeline, facts.chunks);
  plan.sequence_parallel = parallel.sequence_parallel && plan.mesh.tp > 1;
  plan.splits = resolve_splits(config, facts.mode, plan.mesh);
  plan.exchange = resolve_exchange(config, plan.mesh);
  plan.overlap = resolve_tensor_overlap(parallel, plan.mesh);
  set_data_rules(plan, config);
  plan.device = resolve_device(parallel, facts.site);
  plan.cudnn = resolve_cudnn(facts);
  plan.graphs_asked = parallel.cuda_graphs == "true";
  plan.cuda_graphs =
      wants_graphs(parallel, facts.mesh) && why_no_graphs(config, facts.site, facts.mesh).empty();
  if (plan.device == DeviceKind::cuda) plan.share_devices = parallel.share_devices;
  if (plan.device == DeviceKind::cuda && plan.mesh.world_size() > 1) {
    plan.product_sm_margin = static_cast<int>(parallel.product_sm_margin);
  }
  plan.micro_batch_size = facts.batch.micro_batch_size;
  plan.microbatches = facts.batch.microbatches;
  plan.ramp = facts.batch.ramp;
  plan.local = end_shape(plan.model, plan.mesh_share(), plan.splits.head);
  plan.threads_per_rank = threads_of(parallel, facts.site);
  plan.context = split_context(parallel, plan.mesh.cp, plan.model.layers);
  plan.tokens = token_layout(plan.mesh.cp, plan.model.seq_length);
  plan.length_step = resolve_length_step(config, plan.mesh);
  plan.head_tokens = head_tokens(plan.model, plan.local, plan.compute, plan.device,
                                 parallel.head_chunk.value_or(0));
  plan.matrix_products = resolve_muon_products(config.optimizer.muon, plan.device, plan.compute);
  plan.optimizer_level = resolve_optimizer_level(parallel);
  const int stages = static_cast<int>(plan.mesh.pp);
  plan.schedule =
      schedule_name(parallel.pipeline.scheduler, stages, static_cast<int>(facts.chunks));
  plan.late_weights = puts_weights_late(parallel, plan.mesh);
  plan.group_size =
      static_cast<int>(parallel.pipeline.microbatch_group_size_per_vp_stage.value_or(stages));
  return plan;
}

BucketInput bucket_input(const Plan& plan, int stage, const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  BucketInput input;
  input.rule = plan.gradient.buckets;
  input.bucket_size = parallel.bucket_size.value_or(0);
  input.replicas = plan.mesh.dp * plan.mesh.cp;
  input.expert_replicas = plan.mesh.edp;
  input.parallel_optimizer = parallel.parallel_optimizer.enable;
  input.stage = stage;
  input.overlap = config.hooks.grad_sync == "overlap";
  input.fusion = parallel.comm_fusion;
  input.aggregation_groups = parallel.gradient_aggregation_group.value_or(1);
  input.layers = plan.model.layers;
  const StagePlan& rows = at(plan.stages, stage);
  input.units = rows.units;
  for (const OptimizerShard& shard : rows.shards) {
    input.scattered.push_back(shard.kind == ShardKind::rows);
  }
  return input;
}

/// The deferral of the head's weight gradient; empty if the stage has no head or nothing is
/// deferred.
Deferral deferral_of(const Plan& plan, const StagePlan& rows, const PipelineConfig& pipeline) {
  const int head = head_unit(plan.model.layers);
  const bool defers = pipeline.defer_embedding_wgrad_compute && plan.mesh.pp > 1;
  if (!defers || !holds(rows.units, head)) return {};
  const std::int64_t limit = pipeline.wgrad_deferral_limit;
  const std::int64_t count = limit == 0 ? plan.microbatches : std::min(limit, plan.microbatches);
  return {head, static_cast<int>(count)};
}

void set_schedule(Plan& plan, int stage, const Config& config) {
  StagePlan& rows = at(plan.stages, stage);
  rows.deferral = deferral_of(plan, rows, config.parallel.pipeline);
  const ScheduleInput input = schedule_input(plan, stage);
  rows.schedule = arrange_messages(make_schedule(config.parallel.pipeline.scheduler, input), input);
  rows.warmup = warmup_forwards(rows.schedule);
  rows.slots = peak_microbatches(rows.schedule);
}

/// Adds a stage whose rows are not refined yet.
void add_stage(Plan& plan, int stage, const Config& config) {
  StagePlan& rows = plan.stages.emplace_back();
  for (int chunk = 0; chunk < plan.map.chunks; ++chunk) {
    rows.units.push_back(plan.map.at(stage, chunk));
  }
  rows.parameters = make_parameters({plan.model, plan.mesh, plan.sequence_parallel, plan.splits,
                                     type_of_masters(config.optimizer), &config.optimizer},
                                    rows.units);
  rows.shards = shard_optimizer(plan.mode, config.parallel.parallel_optimizer,
                                plan.gradient.buckets, plan.mesh, rows.parameters);
  rows.matrices = deal_matrices(rows.parameters, rows.shards, plan.mesh, config.optimizer.muon,
                                plan.model.head_dim);
  rows.flat = make_flat_layout(rows.parameters, bucket_input(plan, stage, config));
  measure_slices(rows.shards, rows.parameters, rows.flat);
  set_schedule(plan, stage, config);
  rows.forms = given_forms(plan, stage, config.recompute, config.offload);
}

/// Sets the forward schedule. A gathered weight is kept for one use, for which the slots of a step
/// have enough space.
void set_forward(Plan& plan, int stage) {
  StagePlan& rows = at(plan.stages, stage);
  const ScheduleInput input = forward_input(plan, stage);
  const std::vector<GatherBlock> reads = freed_only(rows.gathers);
  rows.forward_actions =
      gather_freed(refine(schedule_forward_only(input), input, {}, reads), reads, 0);
}

/// Estimates communication and memory of all stages from their rows and tables.
void estimate_stages(Plan& plan, const Config& config) {
  for (int stage = 0; stage < std::ssize(plan.stages); ++stage) {
    StagePlan& rows = at(plan.stages, stage);
    rows.communication =
        estimate_communication(plan, stage * plan.mesh.stride(Axis::pp), step_numbers(config));
    rows.memory = estimate_memory(plan, rows, config.optimizer, config.data, config.checkpoint);
  }
}

/// Estimates the costs that follow from the rows and tables of all stages.
void estimate(Plan& plan, const Config& config) {
  estimate_stages(plan, config);
  plan.flops = estimate_flops(plan.model, plan.tokens_per_step());
  if (const auto machine = machine_of(config.cluster, plan.mesh.world_size())) {
    plan.time =
        estimate_time(plan, *machine, config.checkpoint, config.cluster, config.train.steps);
    plan.device_gib = machine->device.memory_gib;
  } else if (const auto rates = given_rates(config.cluster)) {
    plan.time = estimate_time(plan, *rates);
  }
}

/// The plan with fewer micro-batches. Places of parameters and gradients, and the recomputed parts
/// of each layer, stay the same.
Plan with_microbatches(const Plan& full, std::int64_t microbatches, const Config& config) {
  Plan plan = full;
  plan.smaller.clear();
  plan.microbatches = microbatches;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    StagePlan& rows = at(plan.stages, stage);
    set_schedule(plan, stage, config);
    if (!picks_forms(config.recompute))
      rows.forms = given_forms(plan, stage, config.recompute, config.offload);
    lay_out(plan, stage, move_config(config), rows, &at(full.stages, stage));
  }
  prove(plan);
  return plan;
}

/// Adds the plans for the smaller batches of a ramp.
void add_smaller(Plan& plan, const Config& config) {
  std::vector<Plan> smaller;
  for (const RampPart& part : plan.ramp) {
    const std::int64_t microbatches = part.batch / (plan.micro_batch_size * plan.mesh.dp);
    if (microbatches == plan.microbatches) continue;
    smaller.push_back(with_microbatches(plan, microbatches, config));
    estimate(smaller.back(), config);
  }
  plan.smaller = std::move(smaller);
}

/// A plan whose rows are not refined yet; empty if a rule is broken.
Plan begin_plan(const Config& config, const Site& site, const SourceMap& sources,
                Diagnostics& diagnostics) {
  require(site.world_size >= 1 && site.world_size <= (std::int64_t{1} << 24), ExitCode::usage,
          "a world of " + std::to_string(site.world_size) + " ranks is not from 1 to 16777216");
  Check check(sources, diagnostics);
  const Facts facts(config, site);
  StageMap map = check_rules(facts, check);
  if (diagnostics.has_errors()) return {};
  Plan plan = sizes_of(facts);
  plan.map = std::move(map);
  for (int stage = 0; stage < plan.map.stages; ++stage) add_stage(plan, stage, config);
  return plan;
}

}  // namespace

// Checks of a whole plan for faults that no single key causes.

namespace {

/// A sum of gradients over ranks, if some stage has one: "data parallel (2 ranks)"; else empty.
std::string sums_of(const Plan& plan) {
  for (const StagePlan& stage : plan.stages) {
    for (const CollectiveUse& use : stage.communication) {
      if (use.purpose == TrafficPurpose::gradients) {
        return std::string(name_of(use.cargo)) + " over " + name_of(use.group) + " (" +
               std::to_string(use.ranks) + " ranks)";
      }
    }
  }
  return "";
}

/// Reports error "unfinished-gradients" if hooks.finalize_model_grads is false although gradients
/// are shared.
void check_finalizing(const Plan& plan, const Config& config, Check& check) {
  if (config.hooks.finalize_model_grads) return;
  const std::string sums = sums_of(plan);
  if (sums.empty()) return;
  check.error("unfinished-gradients", "hooks.finalize_model_grads",
              "finalize_model_grads: false leaves gradients unsummed, but this layout has to sum " +
                  sums + ": ranks that share parameters would drift apart",
              "set finalize_model_grads to true");
}

/// Warns "device-memory" if a rank needs more of its CUDA device than cluster.device_memory.
void check_device_memory(const Plan& plan, const Config& config, Check& check) {
  const bool given = config.cluster.device_memory.has_value();
  const std::optional<double> gib = given ? config.cluster.device_memory : plan.device_gib;
  if (plan.device != DeviceKind::cuda || !gib) return;
  const double limit = *gib * 1024 * 1024 * 1024;
  const MemoryEstimate& memory = plan.max_memory();
  if (static_cast<double>(memory.device()) <= limit) return;
  const std::pair<const char*, std::int64_t> parts[] = {
      {"parameters", memory.parameters},       {"gradients", memory.gradients},
      {"optimizer", memory.optimizer},         {"activations", memory.activations},
      {"communication", memory.communication}, {"library", memory.library},
      {"communicators", memory.communicators}};
  std::string list;
  for (const auto& [name, bytes] : parts) {
    if (bytes == 0) continue;
    list += (list.empty() ? "" : ", ") + std::string(name) + " " + format_bytes(bytes);
  }
  check.warning("device-memory", given ? "cluster.device_memory" : "cluster.device",
                "the fullest rank needs " + format_bytes(memory.device()) +
                    " of its device, which has " + format_bytes(static_cast<std::int64_t>(limit)) +
                    ": " + list,
                "use recompute, smaller micro-batches, more ranks or a parallel optimizer");
}

/// Reports error "device-queues" if a rank has more streams on its CUDA device than the device has
/// queues, so that it might wait forever; not if ranks share devices. Only warns if other software
/// is compared.
void check_device_queues(const Plan& plan, const Config& config, Check& check) {
  // If ranks share devices, no device work waits for work that is enqueued later.
  if (plan.device != DeviceKind::cuda) return;
  if (plan.share_devices == DeviceSharing::without_nccl) return;
  DeviceStreams most;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const DeviceStreams count = count_streams(plan, stage);
    if (count.total() > most.total()) most = count;
  }
  if (most.total() <= device_queues) return;
  const std::string rings =
      most.rings > 0 ? formatted(" + {} around rings of context_parallel", most.rings) : "";
  const auto tell = compares_software(config.cluster) ? &Check::warning : &Check::error;
  (check.*tell)(
      "device-queues", "parallel.virtual_pipeline_stages",
      formatted("a rank needs {} streams of the engine + {} for messages between stages (up to 4 "
                "for each of {} chunks){} = {}, but a CUDA device has {} queues: streams that "
                "share one wait for each other, and two ranks could wait for each other's messages "
                "for ever",
                most.engine, most.stages, plan.map.chunks, rings, most.total(), device_queues),
      formatted("set virtual_pipeline_stages to {} or less",
                (device_queues - most.engine - most.rings) / 4));
}

}  // namespace

Plan draft_plan(const Config& config, const Site& site, const SourceMap& sources,
                Diagnostics& diagnostics) {
  Plan plan = begin_plan(config, site, sources, diagnostics);
  for (int stage = 0; stage < std::ssize(plan.stages); ++stage) {
    StagePlan& rows = at(plan.stages, stage);
    ScheduleInput input = schedule_input(plan, stage);
    input.forms = rows.forms;
    lay_moves(plan, input, move_config(config), rows, nullptr);
  }
  estimate_stages(plan, config);
  return plan;
}

Plan make_plan(const Config& config, const Site& site, const SourceMap& sources,
               Diagnostics& diagnostics) {
  Plan plan = begin_plan(config, site, sources, diagnostics);
  if (plan.stages.empty()) return plan;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    lay_out(plan, stage, move_config(config), at(plan.stages, stage));
  }
  if (picks_forms(config.recompute)) {
    estimate_stages(plan, config);
    pick_forms(plan, config, sources, diagnostics);
  }
  if (diagnostics.has_errors()) return {};
  for (int stage = 0; stage < plan.map.stages; ++stage) set_forward(plan, stage);
  prove(plan);
  add_smaller(plan, config);
  estimate(plan, config);
  // The memory is planned for the largest batch of the run.
  for (Plan& smaller : plan.smaller) {
    for (int stage = 0; stage < plan.map.stages; ++stage) {
      at(smaller.stages, stage).memory = at(plan.stages, stage).memory;
    }
  }
  Check check(sources, diagnostics);
  check_finalizing(plan, config, check);
  check_device_memory(plan, config, check);
  check_device_queues(plan, config, check);
  if (diagnostics.has_errors()) return {};
  plan.steps = config.train.steps;
  plan.length = site.length;
  if (plan.length.pace.end == 0) plan.length.pace.end = plan.steps;
  // A resumed run may be between two steps of its schedule, so it has no preview of rates.
  if (site.done.steps == 0) plan.rates = preview_rates(config);
  plan.hash = plan_hash(plan, config);
  return plan;
}

}  // namespace trainctl
