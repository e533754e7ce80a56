#include "engine/forward.h"

#include <algorithm>
#include <cassert>

#include "comm/group.h"
#include "nn/ends.h"
#include "ops/elementwise.h"
#include "plan/cost/forms.h"

namespace trainctl {

namespace {

/// Turns all sequences after the first `kept` into padding.
void drop_sequences(Batch& batch, std::int64_t kept) {
  for (std::size_t i = static_cast<std::size_t>(kept * batch.length); i < batch.loss_weight.size();
       ++i) {
    batch.weight_sum -= static_cast<double>(batch.loss_weight[i]);
    batch.loss_weight[i] = 0;
  }
  for (std::size_t row = static_cast<std::size_t>(kept); row < batch.real.size(); ++row) {
    batch.real[row] = 0;
  }
}

}  // namespace

Evaluation::Evaluation(const Plan& plan, World& world)
    : last_(plan.mesh.coordinate(world.rank(), Axis::pp) == plan.map.places().last_stage()),
      peers_(world.group("stage", plan.mesh.group(world.rank(), {Axis::tp, Axis::cp, Axis::dp}))),
      shared_(2 * static_cast<std::size_t>(peers_->size())) {}

std::optional<double> Evaluation::run(const Parts& parts, const Dataset& data,
                                      const BatchRule& rule, std::int64_t max_windows) {
  const Plan& plan = parts.plan;
  std::int64_t windows = data.windows();
  if (max_windows > 0 && max_windows < windows) windows = max_windows;
  const std::int64_t size = plan.micro_batch_size;
  const std::int64_t replica = plan.mesh.coordinate(parts.pipeline.world_rank(), Axis::dp);
  const std::int64_t stride = plan.mesh.dp * size;  // windows of all replicas in one pass
  // Where weights are gathered for each pass or tokens go to experts of other ranks, a replica
  // without windows takes part with a batch of weight 0. If one stage needs this, all stages do it,
  // since each passes its output to the next.
  const bool together =
      plan.mesh.ep * plan.exchange.parts > 1 || std::ranges::any_of(plan.stages, frees_weights);
  Batch batch;
  std::array<double, 2> mine{};  // loss, weight
  std::int64_t passes = 0;
  for (std::int64_t begin = 0; begin < windows; begin += stride) {
    if (parts.ends && passes++ % plan.microbatches == 0) {
      parts.pipeline.await_outputs();
      if (parts.ends()) return std::nullopt;
    }
    const std::int64_t first = begin + replica * size;
    const bool beyond = first >= windows;
    if (beyond && !together) continue;
    make_window_batch(data, rule, beyond ? begin : first, batch);
    drop_sequences(batch, beyond ? 0 : windows - first);
    add_batch(parts, batch, mine);
  }
  parts.pipeline.await_outputs();  // a rank may leave only after its sends have arrived
  std::array<double, 1> mean{};
  if (last_) {
    Stream stream(DeviceKind::cpu, "evaluation", Stream::Mode::run_inline);
    gather_values(*peers_, mine, shared_, stream);
    std::array<double, 2> all{};
    for (std::size_t i = 0; i < shared_.size(); ++i) all[i % 2] += shared_[i];
    mean[0] = all[0] / all[1];
  }
  const bool knows = parts.pipeline.share_result(host_tensor(mean.data(), 1));
  return knows ? std::optional(mean[0]) : std::nullopt;
}

void Evaluation::add_batch(const Parts& parts, const Batch& batch, std::array<double, 2>& sums) {
  parts.state.host().loss_sum = 0;
  parts.state.send(parts.compute);
  parts.executor.forward(batch);
  parts.state.fetch(parts.compute, parts.deadline_seconds);
  sums[0] += parts.state.host().loss_sum;
  sums[1] += reads_first(parts.plan.mesh, parts.pipeline.world_rank()) ? batch.weight_sum : 0;
}

namespace {

constexpr std::int64_t pass_tokens = 64;  // most tokens of one pass

std::string row_of(const char* what, int unit) { return what + std::to_string(unit); }

std::vector<SlabRow> slab_rows(const Plan& plan, const StagePlan& stage) {
  std::vector<SlabRow> rows;
  for (const int unit : blocks_of(stage.units, plan.model.layers)) {
    const Shape shape{plan.model.positions, plan.local_of(unit).kv};
    rows.push_back({row_of("k", unit), shape, plan.compute});
    rows.push_back({row_of("v", unit), shape, plan.compute});
  }
  rows.push_back({"logits", {1, plan.model.padded_vocab}, plan.compute});
  rows.push_back({"logits_fp32", {1, plan.model.padded_vocab}, DType::f32});
  return rows;
}

KeyValueCache cache_in(const Slab& slab, std::int64_t layers) {
  KeyValueCache cache;
  for (int unit = 1; unit <= layers; ++unit) {
    const bool here = slab.contains(row_of("k", unit));
    cache.keys.push_back(here ? slab.at(row_of("k", unit)) : Tensor{});
    cache.values.push_back(here ? slab.at(row_of("v", unit)) : Tensor{});
  }
  return cache;
}

}  // namespace

Decoder::Decoder(const Plan& plan, const DeviceWorld& world, WeightSource weights,
                 std::int64_t positions, double deadline_seconds)
    : plan_(decoding_plan(plan, pass_tokens, positions > 0 ? positions : plan.model.positions)),
      stage_(static_cast<int>(plan_.mesh.coordinate(world.rank(), Axis::pp))),
      weights_(std::move(weights)),
      deadline_(deadline_seconds),
      compute_(plan_.device, "compute", Stream::Mode::run_inline),
      buffers_(plan_.device, plan_, stage_),
      ops_(buffers_.context(compute_)),
      tp_(world.group(group_name(TrafficPurpose::layers, tensor_group),
                      plan_.mesh.group(world.rank(), Axis::tp))),
      pipeline_(plan_, buffers_, world, ops_, deadline_),
      slab_(plan_.device, slab_rows(plan_, rows())),
      host_(
          Slab::on_host_for(plan_.device, {{"logits", {1, plan_.model.padded_vocab}, DType::f32}})),
      cache_(cache_in(slab_, plan_.model.layers)),
      executor_({.buffers = buffers_,
                 .pipeline = pipeline_,
                 .ops = ops_,
                 .deadline_seconds = deadline_,
                 .share = {.sequences = 1, .tokens = plan_.tokens},
                 .make_stage = [this] { return make_stage(); },
                 .make_pass = [this](int, int chunk) { return make_pass(chunk); }}) {
  executor_.use(plan_, stage_);
}

std::unique_ptr<Stage> Decoder::make_stage() const {
  return make_decoder_stage(
      {.model = plan_.model,
       .units = rows().units,
       .places = plan_.map.places(),
       .stage = stage_,
       .tp = {.group = tp_.get()},
       .splits = plan_.splits,
       .rope_tables = buffers_.rope_tables(),
       .temperature_tables = buffers_.temperature_tables(),
       .weights = weights_,
       .rows = &rows().declared,
       .activations = [this](int view, int row) { return buffers_.at(view, row); }});
}

Pass Decoder::make_pass(int chunk) const {
  const BatchRows& rows_of_batch = at(rows().declared.batches, chunk);
  BatchTensors batch;
  batch.tokens = buffers_.at(0, rows_of_batch.tokens.later);
  batch.position = buffers_.at(0, rows_of_batch.position.later);
  return {.ops = &ops_,
          .batch = batch,
          .stream = batch,
          .cache = &cache_,
          .deadline_seconds = deadline_};
}

std::span<const float> Decoder::advance(std::span<const std::int32_t> tokens) {
  assert(!tokens.empty() && seen() + std::ssize(tokens) <= capacity());
  for (std::size_t at = 0; at < tokens.size(); at += pass_tokens) {
    pass(tokens.subspan(at, std::min<std::size_t>(pass_tokens, tokens.size() - at)));
  }
  pipeline_.await_outputs();  // a rank may leave only after its sends have arrived
  if (holds(rows().units, head_unit(plan_.model.layers))) fetch_logits();
  const Tensor known = host_.at("logits").view({plan_.model.padded_vocab});
  const Tensor real = known.slice(0, plan_.model.vocab);
  if (!pipeline_.share_result(real)) return {};
  return {real.as<float>(), static_cast<std::size_t>(real.numel())};
}

void Decoder::pass(std::span<const std::int32_t> tokens) {
  batch_.length = std::ssize(tokens);
  batch_.tokens.assign(tokens.begin(), tokens.end());
  batch_.position.resize(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    batch_.position[i] = static_cast<std::int32_t>(seen() + static_cast<std::int64_t>(i));
  }
  executor_.forward(batch_);
  cache_.seen += batch_.length;
}

/// Collects the logits of the last pass from all ranks that share the vocabulary.
void Decoder::fetch_logits() {
  const Tensor own = buffers_.at(0, rows().declared.head_scratch.logits.later);
  const Tensor all = slab_.at("logits");
  if (plan_.splits.head == SplitBy::features) {
    tp_->all_gather(own, all, compute_);
  } else {
    compute_.copy(all, own);
  }
  const Tensor wide = slab_.at("logits_fp32");
  cast(ops_, {.x = all, .y = wide});
  compute_.copy(host_.at("logits"), wide);
  await(compute_.record(), deadline_, [] { return "the logits of a token"; });
  const LogitForm form = logit_form(plan_.model);
  if (form.is_plain()) return;
  const Tensor known = host_.at("logits");
  for (std::int64_t i = 0; i < known.numel(); ++i) {
    known.as<float>()[i] = formed_logit(form, known.as<float>()[i]);
  }
}

}  // namespace trainctl
