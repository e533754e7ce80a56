#include "plan/plan.h"

#include <algorithm>

#include "base/at.h"
#include "base/scratch.h"

namespace trainctl {

std::int64_t Plan::tokens_per_step() const {
  return micro_batch_size * microbatches * mesh.dp * model.seq_length;
}

Plan Plan::at_length(std::int64_t sequence_length) const {
  Plan plan = *this;
  plan.smaller.clear();
  plan.length_step = 0;
  plan.model = model.of_length(sequence_length);
  plan.tokens.seq_length = sequence_length;
  plan.local = end_shape(plan.model, plan.mesh_share(), splits.head);
  return plan;
}

LocalShape Plan::local_of(int unit) const {
  return local_shape(form_of(unit), mesh_share(), splits.of_unit(unit), exchange);
}

LayerShare Plan::share_of(int unit) const {
  return {.local = local_of(unit),
          .mesh = mesh,
          .stream = stream(),
          .split = splits.of_unit(unit),
          .context = context.of_unit(unit),
          .exchange = exchange,
          .overlap = overlap,
          .moves_heads_at_once = splits.moves_at_once,
          .fp32_sums = fp32_sums,
          .compute = compute};
}

const Plan& Plan::after(std::int64_t completed) const {
  const std::int64_t batch = part_after(ramp, completed).batch;
  const auto same = std::find_if(smaller.begin(), smaller.end(), [&](const Plan& plan) {
    return plan.micro_batch_size * plan.microbatches * mesh.dp == batch;
  });
  return same == smaller.end() ? *this : *same;
}

namespace {

/// The maximum over all numbers of micro-batches.
std::int64_t max_bytes(const Plan& plan, int stage, std::int64_t ActivationSlots::*bytes) {
  std::int64_t most = at(plan.stages, stage).activation_slots.*bytes;
  for (const Plan& other : plan.smaller) {
    most = std::max(most, at(other.stages, stage).activation_slots.*bytes);
  }
  return most;
}

/// The first micro-batch that uses the view.
int microbatch_in(const StagePlan& stage, int view) {
  const std::vector<int>& views = stage.activation_slots.view_of;
  return static_cast<int>(std::find(views.begin(), views.end(), view) - views.begin());
}

}  // namespace

std::int64_t Plan::activation_bytes(int stage) const {
  return max_bytes(*this, stage, &ActivationSlots::bytes);
}

std::int64_t Plan::scratch_bytes() const {
  const std::int64_t attention = cudnn ? attention_bytes(attention_part(*cudnn)) : 0;
  return trainctl::scratch_bytes(device, threads_per_rank) + attention;
}

std::int64_t Plan::host_bytes(int stage) const {
  return max_bytes(*this, stage, &ActivationSlots::host_bytes);
}

namespace {

/// `share`: number of experts that are counted.
std::int64_t count_parameters(const Plan& plan, std::int64_t share) {
  std::int64_t count = 0;
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& row : stage.parameters) {
      if (row.second_home) continue;
      const std::int64_t all = row.global_shape.numel();
      count += row.expert ? all / plan.model.experts * share : all;
    }
  }
  return count;
}

}  // namespace

std::int64_t Plan::parameter_count() const { return count_parameters(*this, model.experts); }

std::int64_t Plan::active_parameter_count() const { return count_parameters(*this, model.topk); }

const MemoryEstimate& Plan::max_memory() const {
  const auto bytes = [](const StagePlan& stage) { return stage.memory.device(); };
  return std::ranges::max_element(stages, {}, bytes)->memory;
}

std::vector<int> embedding_homes(const Plan& plan, std::int64_t rank) {
  const std::vector<int> stages = plan.mesh.group(rank, Axis::pp);
  const ChunkPlaces places = plan.map.places();
  std::vector<int> homes{at(stages, places.first_stage())};
  if (places.last_stage() != places.first_stage()) homes.push_back(at(stages, places.last_stage()));
  return homes;
}

bool frees_weights(const StagePlan& stage) {
  return std::ranges::any_of(stage.gathers, &GatherBlock::freed);
}

std::int64_t visits_of(const StagePlan& stage, ActionKind kind, int bucket) {
  return std::ranges::count_if(
      stage.actions, [&](const Action& row) { return row.kind == kind && row.bucket == bucket; });
}

ScheduleInput schedule_input(const Plan& plan, int stage) {
  ScheduleInput input;
  input.stages = plan.map.stages;
  input.stage = stage;
  input.microbatches = static_cast<int>(plan.microbatches);
  input.group_size = plan.group_size;
  input.units = at(plan.stages, stage).units;
  input.messages = plan.messages;
  input.route = plan.map.route;
  input.forms = at(plan.stages, stage).forms;
  input.deferral = at(plan.stages, stage).deferral;
  input.late_weights = plan.late_weights;
  for (int unit = 0; plan.exchange.beside_passes && unit <= plan.model.layers; ++unit) {
    input.legs.push_back(unit > 0 && plan.model.kind(unit - 1).experts ? 1 : 0);
  }
  return input;
}

ScheduleInput forward_input(const Plan& plan, int stage) {
  ScheduleInput input = schedule_input(plan, stage);
  input.microbatches = 1;
  input.forms = {};
  input.deferral = {};
  input.legs.clear();
  input.forward_only = true;
  return input;
}

bool defers_in_view(const StagePlan& stage, int view) {
  return microbatch_in(stage, view) < stage.deferral.microbatches;
}

bool partial_in_view(const StagePlan& stage, int view, int unit) {
  const auto chunk =
      std::ranges::find_if(stage.units, [&](const UnitRange& range) { return range.holds(unit); });
  return stage.forms.in_partial(static_cast<int>(chunk - stage.units.begin()),
                                microbatch_in(stage, view));
}

ChunkRows rows_in_view(const Plan& plan, const StagePlan& rows, int stage, int view) {
  return {plan.map.places(), stage,
          rows.units,        plan.model.layers,
          rows.declared,     [&rows, view](int unit) {
            return partial_in_view(rows, view, unit); }};
}

BlockForm form_in_view(const StagePlan& stage, int view, int unit) {
  return stage.forms.of(unit, partial_in_view(stage, view, unit));
}

std::vector<std::int64_t> scored_layers(const Plan& plan, const StagePlan& stage) {
  std::vector<std::int64_t> layers;
  for (const int unit : blocks_of(stage.units, plan.model.layers)) layers.push_back(unit - 1);
  return layers;
}

std::int64_t scores_of_rank(const Plan& plan) {
  std::int64_t most = 0;
  for (const StagePlan& stage : plan.stages) {
    most = std::max<std::int64_t>(most, std::ssize(blocks_of(stage.units, plan.model.layers)));
  }
  return most * plan.model.heads;
}

}  // namespace trainctl
