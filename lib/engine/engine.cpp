// The training steps of one rank: run row by row or as a captured graph, with buffers laid out for
// the plan of the step; memory figures, and totals over batches and routers.

#include "engine/engine.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/at.h"
#include "base/error.h"
#include "base/integers.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "comm/group.h"
#include "config/schema/optimizers.h"
#include "device/cuda_device.h"
#include "ops/cuda_libraries.h"
#include "ops/router.h"
#include "plan/cost/estimate.h"
#include "plan/rules/learning_rate.h"
#include "plan/rules/resolve.h"
#include "plan/tables/mesh.h"

namespace trainctl {

/// The work of a step on a device, row by row or as one graph (parallel.cuda_graphs).
class StepGraph {
 public:
  struct Parts {
    Stream& compute;
    Traffic& traffic;
    Trace* trace = nullptr;         // may be null
    Activity* activity = nullptr;   // may be null
    std::function<void()> enqueue;  // enqueues the rows of a step; the same work each time
    std::function<void()> settle;   // waits for the compute stream
  };
  /// Enqueues one step. The first two steps run row by row, since they load kernels, connect groups
  /// and allocate memory, also once more after products were timed. The third is captured as a
  /// graph; it and all later steps launch the graph, with the same traffic counts and trace
  /// records. Between two steps the host waits for the compute stream.
  void run(const Parts& parts) {
    if (plain_ < plain_steps) {
      ++plain_;
      return parts.enqueue();
    }
    // Other streams may still run earlier work, such as gathers for an evaluation. The host waits
    // for that work, since the order of streams is not enough: NCCL is configured not to order
    // graphs behind other calls (NCCL_GRAPH_MIXING_SUPPORT).
    join_streams(parts.compute);
    parts.settle();
    if (!graph_.captured()) {
      capture(parts);
    } else {
      parts.traffic.repeat(before_, after_);
      if (parts.trace != nullptr) parts.trace->repeat_step();
      if (parts.activity != nullptr) parts.activity->start_step();
    }
    graph_.launch(parts.compute);
  }

 private:
  void capture(const Parts& parts) {
    before_ = parts.traffic.counts();
    graph_.capture(parts.compute, parts.enqueue);
    after_ = parts.traffic.counts();
    if (parts.trace != nullptr) parts.trace->keep_step();
  }

  static constexpr int plain_steps = 2;

  int plain_ = 0;  // steps that ran row by row
  WorkGraph graph_;
  Traffic::Counts before_, after_;  // counts before and after the capture
};

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

OpContext context_of(const Plan& plan, int local_rank, Stream& stream, const Buffers& buffers) {
  set_thread_count(plan.threads_per_rank);
  OpContext context = buffers.context(stream);
  const Kernels& kernels = *context.kernels;
  for (const std::string& name : missing_for(plan, kernels)) {
    throw Error(ExitCode::unavailable, "not built yet: op " + name + " on " +
                                           std::string(kernels.name) + ", which this model needs");
  }
  if (plan.cudnn) {
    cuda_attention().prepare(*plan.cudnn, attention_part(*plan.cudnn), plan.compute);
  }
  if (plan.product_sm_margin > 0) {
    const int device = cuda_device_of(local_rank, shares(plan.share_devices));
    context.product_sms = cuda_multiprocessors_beside(device, plan.product_sm_margin);
  }
  return context;
}

std::unique_ptr<Group> replica_group(const Plan& plan, const DeviceWorld& world, bool experts) {
  return world.group("replicas " + name_of(replicas_kind(plan.mesh, experts)),
                     replica_ranks(plan.mesh, world.rank(), experts));
}

std::vector<SlabRow> router_rows(const ModelShape& model) {
  if (model.experts == 1) return {};
  return {{"sums", Shape{model.layers, router_sums + model.experts}, DType::f32}};
}

std::vector<SlabRow> logit_rows(const EngineInput& input) {
  if (!input.max_attention_logit) return {};
  return {{"logit", Shape{1}, DType::i32}};
}

}  // namespace

Engine::Engine(const EngineInput& input, World& world)
    : input_(input),
      plan_(input.plan),
      now_(nullptr),
      rows_(plan_.stage_of(world.rank())),
      world_(world),
      devices_(world, plan_.device, input.deadline_seconds, plan_.share_devices),
      compute_(plan_.device, "compute", Stream::Mode::run_inline),
      host_(DeviceKind::cpu, "values", Stream::Mode::run_inline),
      buffers_(plan_.device, plan_, stage_number()),
      ops_(context_of(plan_, world.local_rank(), compute_, buffers_)),
      store_(plan_.device, rows_,
             {.compute = plan_.compute,
              .sums = plan_.gradient.kept,
              .optimizer = &input.optimizer,
              .begun_by_products = plan_.gradient.fused,
              .ownership = make_ownership(plan_, world.rank())}),
      state_(plan_.device),
      optimizer_(input.optimizer, store_, state_.of_kernels(), plan_.mesh, world.rank(), compute_),
      matrices_(input.optimizer.muon, plan_, store_, state_.of_kernels(), devices_, compute_),
      everyone_(devices_.everyone(group_name(TrafficPurpose::scalars, world_group))),
      qk_clip_(input.optimizer, plan_, store_, state_.of_kernels(), everyone_->on_host(), compute_),
      tp_(devices_.group(group_name(TrafficPurpose::layers, tensor_group),
                         plan_.mesh.group(world.rank(), Axis::tp))),
      context_(make_context_groups(plan_, devices_)),
      experts_(make_expert_ranks(plan_, devices_, *tp_, context_)),
      router_sums_(plan_.device, router_rows(plan_.model)),
      router_on_host_(Slab::on_host_for(plan_.device, router_rows(plan_.model))),
      logit_(plan_.device, logit_rows(input)),
      logit_on_host_(Slab::on_host_for(plan_.device, logit_rows(input))),
      grad_sync_(plan_, store_, devices_),
      param_sync_(plan_, store_, devices_, grad_sync_.context()),
      pipeline_(plan_, buffers_, devices_, ops_, input_.deadline_seconds),
      evaluation_(plan_, world),
      grad_norm_(store_, *everyone_, input_.optimizer.clip_grad_norm, input_.loss_scaling,
                 state_.of_kernels(), compute_),
      own_trace_(input_.hooks.timers && input_.trace == nullptr
                     ? std::make_unique<Trace>(rows_.actions, 1)
                     : nullptr),
      trace_(own_trace_ ? own_trace_.get() : input_.trace),
      executor_(executor_input()) {
  StepState& state = state_.host();
  state.seed = input_.train.seed;
  state.loss_scale = input_.loss_scaling.initial;
  state.hysteresis = input_.loss_scaling.hysteresis;
  shared_.resize(static_cast<std::size_t>(world.size()));
  counted_.resize(shared_.size());
  owns_batch_ = reads_first(plan_.mesh, world.rank()) && stage_number() == 0;
  if (trace_ != nullptr && plan_.device == DeviceKind::cuda) trace_->follow(compute_);
  use(plan_.after(0));
  devices_.open();
}

ExecutorInput Engine::executor_input() {
  return {.buffers = buffers_,
          .pipeline = pipeline_,
          .ops = ops_,
          .deadline_seconds = input_.deadline_seconds,
          .share = {.sequences = plan_.micro_batch_size,
                    .replica = plan_.mesh.coordinate(world_.rank(), Axis::dp),
                    .tokens = plan_.tokens,
                    .rank = context_.rank,
                    .heads_ranks = plan_.context.most(&ContextSplit::heads)},
          .make_stage = [this] { return make_stage(); },
          .make_pass = [this](int view, int chunk) { return make_pass(view, chunk); },
          .param_sync = &param_sync_,
          .grad_sync = &grad_sync_,
          .after_forward = forward_hook(),
          .after_backward = backward_hook(),
          .before_reduce = input_.hooks.grad_sync,
          .optimizer_step = [this] { optimizer_step(); },
          .meet = input_.meet ? [this] { share({}); } : std::function<void()>(),
          .trace = trace_,
          .activity = world_.activity()};
}

Engine::~Engine() = default;

void Engine::initialise() {
  store_.initialise(ops_, input_.train.seed, plan_.mesh, world_.rank());
  param_sync_.expire();
  if (plan_.broadcast_parameters) broadcast_parameters();
  settle();
  store_.begin_averages();
}

void Engine::broadcast_parameters() {
  std::unique_ptr<Group> experts;
  const auto copies = replica_group(plan_, devices_, false);
  if (plan_.model.experts > 1) experts = replica_group(plan_, devices_, true);
  devices_.open();
  // Only parameters that every replica owns whole can differ; sharded ones come from their owners.
  for (int i = 0; i < static_cast<int>(store_.table().size()); ++i) {
    const bool whole = at(rows_.shards, i).kind == ShardKind::whole;
    Group& replicas = experts && at(rows_.parameters, i).expert ? *experts : *copies;
    if (whole) replicas.broadcast(store_.master(i), 0, compute_);
  }
  store_.refresh_weights(ops_);
  settle();  // before the groups are destroyed
}

void Engine::masters_changed() {
  store_.refresh_weights(ops_);
  param_sync_.expire();
  settle();
}

void Engine::settle() const {
  await(compute_.record(), input_.deadline_seconds, [] { return "the work of the device"; });
}

void Engine::complete_weights() {
  param_sync_.complete(ops_, input_.deadline_seconds);
  settle();
}

WholeParams Engine::whole_parameters(std::span<std::byte> work) {
  return {plan_, store_, everyone_->on_host(), input_.deadline_seconds, work};
}

void Engine::resume(const TrainState& state) {
  completed_ = state.step;
  use(plan_.after(completed_));
  samples_ = state.samples;
  tokens_ = state.tokens;
  positions_ = state.positions;
  labels_ = state.labels;
  skipped_in_row_ = state.skipped_in_row;
  StepState& values = state_.host();
  values.updates = state.updates;
  values.loss_scale = state.loss_scale;
  values.good_steps = state.good_steps;
  values.hysteresis = state.hysteresis;
  masters_changed();
}

TrainState Engine::train_state() const {
  const StepState& state = state_.host();
  return {.step = completed_,
          .samples = samples_,
          .tokens = tokens_,
          .positions = positions_,
          .labels = labels_,
          .updates = state.updates,
          .loss_scale = state.loss_scale,
          .good_steps = state.good_steps,
          .hysteresis = state.hysteresis,
          .skipped_in_row = skipped_in_row_};
}

Engine::RowHook Engine::forward_hook() {
  if (!input_.hooks.after_forward) return {};
  return [this, stage = stage_number()](const Action& row, int unit, int view) {
    const ChunkPlaces places = plan_.map.places();
    const UnitRange& units = at(rows_.units, row.chunk);
    // If the chunk before is on this stage, the hook was called when this output was computed.
    if (unit < units.begin && !places.receives(stage, row.chunk)) return;
    const int output = unit + 1 < plan_.units()
                           ? rows_in_view(plan_, rows(), stage, view).output_of(row.chunk, unit)
                           : rows().declared.head.norm.later;
    settle();
    input_.hooks.after_forward(unit, row.microbatch, buffers_.at(view, output));
  };
}

template <class... Arguments>
std::function<void(Arguments...)> Engine::settled(
    const std::function<void(Arguments...)>& hook) const {
  if (!hook) return {};
  return [this, &hook](Arguments... arguments) {
    settle();
    hook(arguments...);
  };
}

Engine::RowHook Engine::backward_hook() {
  if (!input_.hooks.after_backward) return {};
  return [this, stage = stage_number()](const Action& row, int unit, int view) {
    const int gradient =
        rows_in_view(plan_, rows(), stage, view).input_gradient_of(row.chunk, unit);
    settle();
    input_.hooks.after_backward(unit, row.microbatch, buffers_.at(view, gradient));
  };
}

const std::vector<Engine::Pair>& Engine::share(Pair mine) {
  gather_values(everyone_->on_host(), mine, {shared_.front().data(), 2 * shared_.size()}, host_);
  return shared_;
}

StepReport Engine::train_step(const std::vector<Batch>& batches) {
  const auto start = Clock::now();
  use(plan_.after(completed_));
  world_.traffic().begin();
  begin_step(batches);
  run_step(batches);
  state_.fetch(compute_, input_.deadline_seconds);
  const double seconds = seconds_since(start);
  if (trace_ != nullptr) trace_->end_step(seconds);
  tell_timers();
  const StepReport report = finish_step(seconds);
  world_.traffic().end();
  return report;
}

void Engine::begin_step(const std::vector<Batch>& batches) {
  assert(static_cast<std::int64_t>(batches.size()) == now_->microbatches);
  assert(std::ranges::all_of(batches, [](const Batch& batch) { return batch.length > 0; }));
  tokens_now_ = labels_now_ = now_->tokens_per_step();
  weight_sum_ = static_cast<double>(tokens_now_);
  flops_ = now_->flops.total();
  if (input_.count_loss_weights) count_batches(batches);
  StepState& state = state_.host();
  scale_ = state.loss_scale;
  updates_ = state.updates;
  const double update = static_cast<double>(updates_ + 1);
  state.step = completed_;
  state.loss_sum = 0;
  const auto factor = static_cast<double>(plan_.gradient.factor);
  state.loss_factor = weight_sum_ > 0 ? static_cast<float>(factor / weight_sum_) : 0.0F;
  state.token_factor =
      tokens_now_ > 0 ? static_cast<float>(factor / static_cast<double>(tokens_now_)) : 0.0F;
  const SchedulePace& pace = plan_.length.pace;
  state.learning_rate =
      static_cast<float>(learning_rate(input_.lr_schedule, pace.end, pace.at(updates_)));
  state.weight_decay =
      static_cast<float>(weight_decay(input_.optimizer, pace.end, pace.at(updates_)));
  state.bias_correction1 = static_cast<float>(1.0 - std::pow(input_.optimizer.beta1, update));
  state.bias_correction2 = static_cast<float>(1.0 - std::pow(input_.optimizer.beta2, update));
}

/// Every step of a plan enqueues the same work: the values that change are in the step state and in
/// the batches.
void Engine::enqueue_step(const std::vector<Batch>& batches) {
  state_.send(compute_);
  store_.begin_gradients(compute_);
  if (router_sums_.contains("sums")) compute_.zero(router_sums_.at("sums"));
  if (logit_.contains("logit")) compute_.zero(logit_.at("logit"));
  qk_clip_.begin(compute_);
  executor_.step(batches);
}

void Engine::run_step(const std::vector<Batch>& batches) {
  if (graph_ == nullptr) return enqueue_step(batches);
  executor_.fill_feeds(batches);
  graph_->run({.compute = compute_,
               .traffic = world_.traffic(),
               .trace = trace_,
               .activity = world_.activity(),
               .enqueue = [&] { enqueue_step(batches); },
               .settle = [&] { settle(); }});
  param_sync_.expire();
}

void Engine::optimizer_step() {
  if (input_.hooks.finalize_model_grads) {
    settle();
    input_.hooks.finalize_model_grads(store_);
  }
  grad_norm_.run(ops_);
  optimizer_.step(ops_);
  matrices_.step(ops_);
  if (qk_clip_.on()) {
    qk_clip_.fetch(compute_);
    settle();
    qk_clip_.step(ops_, host_);
  }
  optimizer_.average(ops_);
  param_sync_.expire();
}

void Engine::tell_timers() const {
  if (!input_.hooks.timers) return;
  const TimerSeconds seconds = timers_of(*trace_, trace_->completed_steps());
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    input_.hooks.timers(timer_names[i], seconds[i]);
  }
}

StepReport Engine::finish_step(double seconds) {
  const int request = input_.request ? input_.request() : 0;
  const StepState& state = state_.host();
  const std::optional<RouterReport> router = share_router();
  const std::optional<double> logit = share_logit();
  double total = 0;
  double greatest = 0;
  for (const Pair& other : share({state.loss_sum, static_cast<double>(request)})) {
    total += other[0];
    greatest = std::max(greatest, other[1]);
  }
  if (plan_.model.expert_bias && !state.found_inf) {
    move_expert_biases(plan_.model, router_sums_.at("sums"), store_);
  }
  const bool bad = state.found_inf || !std::isfinite(total);
  skipped_in_row_ = bad ? skipped_in_row_ + 1 : 0;
  if (bad && !(std::isfinite(total) && scale_explains_overflow())) check_bad_steps();
  ++completed_;
  const std::int64_t positions = now_->tokens_per_step();
  const std::int64_t batch = positions / plan_.model.seq_length;
  samples_ += batch;
  positions_ += positions;
  tokens_ += tokens_now_;
  labels_ += labels_now_;
  return {.step = completed_,
          .steps = input_.train.steps,
          .loss = weight_sum_ > 0 ? total / weight_sum_ : 0.0,
          .grad_norm = state.grad_norm,
          .lr = double{state.learning_rate},
          .max_attention_logit = logit,
          .tokens = tokens_,
          .positions = positions_,
          .labels = labels_,
          .batch_size = plan_.ramp.size() > 1 ? std::optional(batch) : std::nullopt,
          .tokens_per_second = static_cast<double>(tokens_now_) / seconds,
          .step_seconds = seconds,
          .flops_per_second = flops_ / seconds,
          .val_loss = std::nullopt,
          .loss_scale = input_.loss_scaling.on ? std::optional(scale_) : std::nullopt,
          .skipped = bad,
          .request = static_cast<int>(greatest),
          .router = router};
}

std::optional<double> Engine::evaluate(const Dataset& data, const BatchRule& rule,
                                       std::int64_t max_windows,
                                       const std::function<bool()>& ends) {
  complete_weights();
  const auto any_ends = [&] {
    double most = 0;
    for (const Pair& other : share({0, ends() ? 1.0 : 0.0})) most = std::max(most, other[1]);
    return most > 0;
  };
  return evaluation_.run({.plan = *now_,
                          .executor = executor_,
                          .pipeline = pipeline_,
                          .compute = compute_,
                          .state = state_,
                          .ends = ends ? std::function<bool()>(any_ends) : nullptr,
                          .deadline_seconds = input_.deadline_seconds},
                         data, rule, max_windows);
}

void Engine::check_replicas() {
  complete_weights();
  if (!replicas_) replicas_ = std::make_unique<ReplicaCheck>(plan_, store_, world_);
  replicas_->run(completed_);
}

namespace {

/// Why, unknown to the plan, steps cannot be captured as graphs of the device; "" if they can.
std::string why_no_graphs(const EngineInput& input, const DeviceWorld& devices) {
  const Hooks& hooks = input.hooks;
  const bool looks = hooks.finalize_model_grads || hooks.after_forward || hooks.after_router ||
                     hooks.after_router_backward || hooks.after_dropout || hooks.after_backward ||
                     hooks.grad_sync;
  if (looks) return "hooks of the program look inside a step";
  if (input.meet) return "the ranks meet within a step";
  if (input.optimizer.qk_clip_threshold) {
    return "optimizer.qk_clip_threshold shares scores over the host within a step";
  }
  return devices.host_part();
}

/// For each micro-batch, the number of earlier micro-batches in the same view.
std::vector<int> places_in_views(const std::vector<int>& view_of) {
  std::vector<int> places;
  for (auto one = view_of.begin(); one != view_of.end(); ++one) {
    places.push_back(static_cast<int>(std::count(view_of.begin(), one, *one)));
  }
  return places;
}

/// The FLOPs of a sequence whose first `tokens` positions are real: matrix products in proportion
/// to these tokens, causal attention in proportion to their pairs of positions.
double flops_of_row(const Plan& plan, std::int64_t tokens) {
  const auto real = static_cast<double>(tokens);
  const double share = real / static_cast<double>(plan.tokens_per_step());
  const double pairs = (real + 1) / static_cast<double>(plan.model.seq_length + 1);
  return share * (plan.flops.matmul + plan.flops.attention_causal * pairs);
}

}  // namespace

void Engine::use(const Plan& plan) {
  const bool first = now_ == nullptr;
  if (!first && &plan == now_) return;
  now_ = &plan;
  graph_.reset();
  std::vector<int> feed_places;
  const std::string why = plan.cuda_graphs ? why_no_graphs(input_, devices_) : "";
  if (plan.cuda_graphs && why.empty()) {
    graph_ = std::make_unique<StepGraph>();
    feed_places = places_in_views(rows().activation_slots.view_of);
  }
  if (first && plan.graphs_asked && !why.empty() && world_.rank() == 0) {
    log_warning("parallel.cuda_graphs has no effect, steps run row by row: " + why);
  }
  executor_.use(plan, stage_number(), std::move(feed_places));
}

std::unique_ptr<Stage> Engine::make_stage() {
  if (plan_.overlap.any && beside_ == nullptr) {
    beside_ = std::make_unique<Stream>(plan_.device, "layers", Stream::Mode::queued);
  }
  const DeclaredRows& declared = rows().declared;
  const auto shared = [this](const RowCopies& row) { return buffers_.at(0, row.later); };
  return make_decoder_stage(
      {.model = plan_.model,
       .units = rows().units,
       .form = [this](int view, int unit) { return form_in_view(rows(), view, unit); },
       .defers_head = [this](int view) { return defers_in_view(rows(), view); },
       .places = plan_.map.places(),
       .stage = stage_number(),
       .micro_batch_size = plan_.micro_batch_size,
       .views = rows().activation_slots.views(),
       .tp = {.group = tp_.get(),
              .stream = plan_.sequence_parallel ? Layout::tokens : Layout::invariant,
              .sum = shared(declared.sum),
              .overlap = plan_.overlap,
              .beside = beside_.get(),
              .arriving = plan_.overlap.any ? shared(declared.partial_sums) : Tensor{}},
       .context = [this, packed = shared(declared.attention.packed)](
                      int unit) { return context_of(plan_, context_, unit, packed); },
       .experts = experts_.groups,
       .splits = plan_.splits,
       .rope_tables = buffers_.rope_tables(),
       .temperature_tables = buffers_.temperature_tables(),
       .weights =
           [this](const std::string& name) {
             Weight weight = store_.weight(name);
             weight.rows_vary = plan_.length_step > 0;
             if (!plan_.gradient.fused)
               weight.apart = buffers_.at(0, rows().declared.d_weight.later);
             return weight;
           },
       .rows = &declared,
       .activations = [this](int view, int row) { return buffers_.at(view, row); },
       .keeps_more = [this](int view, int unit) { return partial_in_view(rows(), view, unit); }});
}

Pass Engine::make_pass(int view, int chunk) const {
  // Only the first chunk has tokens, and only the last one has labels.
  const BatchRows& batch = at(rows().declared.batches, chunk);
  const auto row = [&](const RowCopies& of) { return buffers_.at(view, of.later); };
  const auto own = [&](const Tensor& x) {  // the share of this rank along tp
    if (x.empty()) return x;
    const std::int64_t rows = x.numel() / tp_->size();
    return x.slice(tp_->rank() * rows, (tp_->rank() + 1) * rows);
  };
  const BatchTensors all{
      .tokens = row(batch.tokens),
      .labels = row(batch.labels),
      .position = row(batch.position),
      .global_token = row(batch.global_token),
      .loss_weight = row(batch.loss_weight),
      .first_position = input_.separate_documents ? row(batch.first_position) : Tensor{},
      .query_token = row(batch.query_token),
      .real_query = row(batch.real_query),
      .real = row(batch.real)};
  const BatchTensors share{.tokens = own(all.tokens),
                           .labels = own(all.labels),
                           .position = own(all.position),
                           .global_token = own(all.global_token),
                           .loss_weight = own(all.loss_weight),
                           .first_position = {},
                           .query_token = {},
                           .real = {}};
  // Ranks along tp and cp route the same tokens, so only one of these ranks counts them.
  const bool counted = reads_first(plan_.mesh, world_.rank());
  return {
      .ops = &ops_,
      .state = state_.of_kernels(),
      .batch = all,
      .stream = plan_.sequence_parallel ? share : all,
      .share = share,
      .router_sums = counted && router_sums_.contains("sums") ? router_sums_.at("sums") : Tensor{},
      .largest_logit = logit_.contains("logit") ? logit_.at("logit") : Tensor{},
      .largest_scores = qk_clip_.scores(),
      .routed = settled(input_.hooks.after_router),
      .routed_back = settled(input_.hooks.after_router_backward),
      .dropped = settled(input_.hooks.after_dropout),
      .training = true,
      .deadline_seconds = input_.deadline_seconds};
}

MemoryEstimate Engine::memory() const {
  MemoryEstimate memory;
  memory.parameters = store_.bytes("weights") + store_.bytes("masters");
  memory.gradients = store_.bytes("gradients") + store_.bytes("sums");
  memory.optimizer = matrices_.bytes();
  for (int i = 0; i < max_kept; ++i) memory.optimizer += store_.bytes("state" + std::to_string(i));
  memory.activations = buffers_.bytes();
  memory.offloaded = buffers_.host_bytes() + store_.host_bytes();
  memory.data += executor_.feed_bytes();
  memory.communication = grad_sync_.bytes() + param_sync_.bytes();
  for (const Traffic::Row& row : world_.traffic().rows()) memory.communication += row.memory;
  return memory;
}

void Engine::count_batches(const std::vector<Batch>& batches) {
  Counts mine{};
  if (owns_batch_ || plan_.full_batch) {
    for (const Batch& batch : batches) {
      mine[0] += batch.weight_sum;
      mine[1] += static_cast<double>(real_positions(batch));
      mine[2] += static_cast<double>(counted_labels(batch));
      for (const std::int64_t tokens : batch.real) mine[3] += flops_of_row(plan_, tokens);
    }
  }
  Counts sums = plan_.full_batch ? mine : Counts{};
  if (!plan_.full_batch) {
    gather_values(everyone_->on_host(), mine, {counted_.front().data(), 4 * counted_.size()},
                  host_);
    for (const Counts& other : counted_) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other[i];
    }
  }
  weight_sum_ = sums[0];
  tokens_now_ = static_cast<std::int64_t>(sums[1]);
  labels_now_ = static_cast<std::int64_t>(sums[2]);
  flops_ = sums[3];
}

std::optional<RouterReport> Engine::share_router() {
  if (!router_sums_.contains("sums")) return std::nullopt;
  const Tensor sums = router_sums_.at("sums");
  everyone_->all_reduce(sums, compute_);
  const Tensor counted = router_on_host_.at("sums");
  compute_.copy(counted, sums);
  settle();
  const std::int64_t experts = plan_.model.experts;
  RouterReport report{.experts = experts};
  loads_.clear();
  for (std::int64_t layer = 0; layer < plan_.model.layers; ++layer) {
    if (!plan_.model.kind(layer).experts) continue;
    const float* row = counted.slice(layer, layer + 1).as<float>();
    const auto sum = [&](RouterSum one) { return double{row[static_cast<int>(one)]}; };
    const float* loads = row + router_sums;
    const double mean = std::accumulate(loads, loads + experts, 0.0) / static_cast<double>(experts);
    std::transform(loads, loads + experts, std::back_inserter(loads_),
                   [&](float load) { return static_cast<float>(double{load} / mean); });
    report.balance_loss += sum(RouterSum::balance);
    report.z_loss += sum(RouterSum::z_loss);
    report.entropy += sum(RouterSum::entropy);
    report.dropped += sum(RouterSum::dropped);
  }
  report.loads = loads_;
  report.load = *std::ranges::max_element(loads_);
  const std::int64_t layers = std::ssize(loads_) / experts;
  const double tokens = static_cast<double>(layers * tokens_now_);
  report.balance_loss /= tokens;
  report.z_loss /= tokens;
  report.entropy /= tokens;
  return report;
}

/// The ranks share integer keys (base/integers.h), so that NaN is the largest.
std::optional<double> Engine::share_logit() {
  if (!logit_.contains("logit")) return std::nullopt;
  const Tensor own = logit_on_host_.at("logit");
  compute_.copy(own, logit_.at("logit"));
  settle();
  const auto key = static_cast<std::uint32_t>(*own.as<std::int32_t>());
  double most = 0;
  for (const Pair& other : share({static_cast<double>(key), 0})) most = std::max(most, other[0]);
  return double{number_of_key(static_cast<std::uint32_t>(most))};
}

}  // namespace trainctl
