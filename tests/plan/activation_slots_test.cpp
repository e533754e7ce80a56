// Where activations lie: no two share memory while both are read, and no memory is planned that is
// never needed; and the peaks and idle times that the schedules promise.
#include "plan/schedule/activation_slots.h"

#include <algorithm>
#include <cmath>

#include "base/at.h"
#include "catch.h"
#include "pipeline.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"
#include "plan/rules/resolve.h"
#include "sample.h"

using namespace trainctl;

namespace {

using Scheduler = PipelineScheduler;

Config staged(Scheduler scheduler, std::int64_t stages, std::int64_t chunks,
              std::int64_t microbatches) {
  Config config = small_config();
  config.model.num_layers = stages * 2;
  config.parallel.pipeline_stages = stages;
  config.parallel.virtual_pipeline_stages = chunks;
  config.parallel.pipeline.scheduler = scheduler;
  config.train.global_batch_size = microbatches;
  config.train.micro_batch_size = 1;
  return config;
}

/// A form for all layers; "partial": of two micro-batches in each window only the first layer;
/// "mixed": another form for each layer. After "host ": all layers but the last are on the host, in
/// two buffers with "hosts ".
void recompute(Config& config, std::string form) {
  RecomputeConfig& recompute = config.recompute;
  if (form.starts_with("host")) {
    config.offload.enable = true;
    config.offload.num_layers = config.model.num_layers - 1;
    config.offload.double_buffering = form.starts_with("hosts");
    form = form.substr(form.find(' ') + 1);
  }
  recompute.enable = form != "none";
  if (form == "partial") {
    recompute.num_microbatches_with_partial_activation_checkpoints = 2;
    recompute.layers_per_stage = IntList{1, 1, 1};
  } else if (form == "mixed") {
    recompute.layers = "full, norms, none, attention, mlp+activations, qkv";
  } else if (recompute.enable) {
    recompute.select = form;
  }
}

/// When the first and the last row of a kind runs `unit` for a micro-batch; units of one row run
/// one after the other.
struct Uses {
  std::int64_t first = -1, last = -1;
  void note(std::int64_t time) {
    if (first < 0) first = time;
    last = time;
  }
};

Uses uses_of(const StagePlan& stage, ActionKind kind, int unit, int microbatch) {
  Uses uses;
  for (std::size_t row = 0; row < stage.actions.size(); ++row) {
    const Action& action = stage.actions[row];
    if (action.kind == kind && action.microbatch == microbatch && action.begin <= unit &&
        unit < action.end) {
      uses.note(static_cast<std::int64_t>(row) * 1000 + unit);
    }
  }
  return uses;
}

struct Stay {
  std::int64_t from = 0, until = 0, begin = 0, end = 0;  // rows; bytes
  std::string name;
};

/// The row that first writes what lives from a moment, and the last that reads it.
ActionKind first_of_life(Moment from) {
  switch (from) {
    case Moment::offload: return ActionKind::offload;
    case Moment::reload: return ActionKind::reload;
    case Moment::repeat: return ActionKind::repeat;
    case Moment::gradient:
    case Moment::backward: return ActionKind::backward_input;
    case Moment::weight: return ActionKind::backward_weight;
    default: return ActionKind::forward;
  }
}
ActionKind last_of_life(Moment until) {
  if (until == Moment::offload) return ActionKind::wait_offload;
  return until == Moment::reload ? ActionKind::wait_reload : first_of_life(until);
}

constexpr std::int64_t host_memory = std::int64_t{1} << 40;  // where it begins

/// From the rows alone: what F, B or W of the row's own unit, and its copies, write and read.
/// (What arrives before F or B, and messages, lives longer than that.)
std::vector<Stay> stays_of(const Plan& plan, const StagePlan& stage) {
  std::vector<Stay> stays;
  for (std::size_t i = 0; i < stage.activations.size(); ++i) {
    const ActivationSpec& spec = stage.activations[i];
    if (spec.unit < 0) continue;
    for (int m = 0; m < static_cast<int>(plan.microbatches); ++m) {
      const int view = at(stage.activation_slots.view_of, m);
      if (!stage.activation_slots.has(i, view)) continue;
      const bool on_host = stage.activation_slots.on_host(i);
      const std::int64_t place =
          stage.activation_slots.place(i, view) + (on_host ? host_memory : 0);
      stays.push_back({uses_of(stage, first_of_life(spec.from), spec.unit, m).first,
                       uses_of(stage, last_of_life(spec.until), spec.unit, m).last, place,
                       place + padded_bytes(spec), spec.name + " " + std::to_string(m)});
    }
  }
  return stays;
}

std::string overlap_of(const std::vector<Stay>& stays) {
  for (std::size_t a = 0; a < stays.size(); ++a) {
    for (std::size_t b = a + 1; b < stays.size(); ++b) {
      const bool together = stays[a].from <= stays[b].until && stays[b].from <= stays[a].until;
      const bool shared = stays[a].begin < stays[b].end && stays[b].begin < stays[a].end;
      if (together && shared) return stays[a].name + " and " + stays[b].name;
    }
  }
  return "";
}

/// Kept rows of blocks and gradients that W reads, at the fullest rank.
std::int64_t peak_of(Scheduler scheduler, std::int64_t chunks, std::int64_t microbatches) {
  const Plan plan = plan_of(staged(scheduler, 4, chunks, microbatches), 4);
  std::int64_t most = 0;
  for (const StagePlan& stage : plan.stages) {
    std::int64_t bytes = 0;
    std::vector<int> pools;
    for (std::size_t row = 0; row < stage.activations.size(); ++row) {
      const ActivationSpec& spec = stage.activations[row];
      const bool counts = spec.storage == Storage::input || spec.storage == Storage::forward ||
                          spec.storage == Storage::statistic || spec.storage == Storage::gradient;
      const bool block = kind_of_unit(spec.unit, plan.model.layers) == UnitKind::block;
      const ActivationSlots& slots = stage.activation_slots;
      const int pool = at(slots.groups, slots.rows[row].group).pool;
      const bool seen = std::find(pools.begin(), pools.end(), pool) != pools.end();
      if (!counts || !block || seen) continue;
      pools.push_back(pool);
      bytes += at(slots.pools, pool).bytes * at(slots.pools, pool).slots;
    }
    most = std::max(most, bytes);
  }
  return most;
}

/// Whether the bytes that are counted are those of the slots: of the stage's own rows and table,
/// and of those that stand for its forms.
void check_counts(const Plan& plan, const Config& config, int stage) {
  const ActivationSlots& slots = at(plan.stages, stage).activation_slots;
  const SlotBytes own = count_slots(plan, stage);
  CHECK(own.device == slots.bytes);
  CHECK(own.host == slots.host_bytes);
  const SlotBytes counted =
      slot_counter(plan, stage, move_config(config))(at(plan.stages, stage).forms);
  CHECK(counted.device == slots.bytes);
  CHECK(counted.host == slots.host_bytes);
}

double idle_seconds(Scheduler scheduler, const PipelineSizes& sizes) {
  SamplePipeline pipeline(scheduler, sizes);
  for (ScheduleInput& input : pipeline.inputs) {
    input.messages.keeps_outputs = true;
    if (!traits_of(scheduler).batches) input.messages.mode = MessageMode::single;
  }
  SimulationInput input = pipeline.simulation();
  // A chunk's pass takes its share of the stage's.
  input.cost = [&](const RankRows& rank, const Action& action) {
    return unit_cost(rank, action) / sizes.chunks;
  };
  const Simulation result = simulate(input);
  REQUIRE(first_of(result.violations) == "");
  return result.seconds * result.bubble_fraction;
}

}  // namespace

TEST_CASE("no two activations share memory while both are in use", "[slots]") {
  for (const ScheduleTraits& schedule : schedules) {
    for (const std::int64_t chunks : {1, 2}) {
      if (chunks < schedule.min_chunks || chunks > schedule.max_chunks) continue;
      for (const char* form : {"none", "full", "norms+attention+activations", "partial", "mixed",
                               "host none", "hosts none", "host mixed", "hosts partial"}) {
        Config config = staged(schedule.value, 3, chunks, 6);
        recompute(config, form);
        const Plan plan = plan_of(config, 3);
        INFO(schedule.word << ", chunks " << chunks << ", repeated " << form);
        for (int stage = 0; stage < plan.map.stages; ++stage) check_counts(plan, config, stage);
        for (const StagePlan& stage : plan.stages) {
          const std::vector<Stay> stays = stays_of(plan, stage);
          CHECK(std::all_of(stays.begin(), stays.end(), [](const Stay& stay) {
            return stay.from >= 0 && stay.until >= stay.from;
          }));
          CHECK(overlap_of(stays) == "");
        }
      }
    }
  }
}

TEST_CASE("slots are counted as they are made where passes run in legs and weights are gathered",
          "[slots]") {
  Config config = staged(Scheduler::one_f_one_b, 2, 2, 8);
  config.moe.num_experts = 4;
  config.moe.router_topk = 2;
  config.moe.overlap_expert_parallel_comm = true;
  config.parallel.expert_parallel = 2;
  config.parallel.parallel_optimizer.enable = true;
  config.parallel.parallel_optimizer.optimizer_level = OptimizerLevel("level3");
  for (const char* form : {"none", "full", "norms+activations"}) {
    recompute(config, form);
    const Plan plan = plan_of(config, 4);
    REQUIRE(plan.exchange.beside_passes);
    INFO(form);
    for (int stage = 0; stage < plan.map.stages; ++stage) check_counts(plan, config, stage);
  }
}

TEST_CASE("a pool that frees a row before its last use is found", "[slots]") {
  Plan plan = plan_of(staged(Scheduler::zb_h1, 3, 1, 6), 3);
  StagePlan& stage = plan.stages.back();
  std::vector<ActivationSpec> short_lived = stage.activations;
  for (ActivationSpec& row : short_lived) {
    if (row.until == Moment::weight) row.until = Moment::backward;
  }
  ScheduleInput input = schedule_input(plan, 2);
  stage.activation_slots = assign_slots(short_lived, stage.actions, input);
  CHECK(overlap_of(stays_of(plan, stage)) != "");
}

TEST_CASE("one rank needs every row once", "[slots]") {
  Config config = small_config();
  config.train.global_batch_size = 8;
  config.train.micro_batch_size = 1;
  const Plan plan = plan_of(config);
  const StagePlan& stage = plan.stages.front();
  CHECK(plan.microbatches == 8);
  CHECK(stage.activation_slots.views() == 1);
  std::int64_t bytes = 0;
  for (const ActivationSpec& row : stage.activations) {
    // Gradients of one layer at a time, of its output also while the layer above writes it.
    const bool of_others = row.storage == Storage::gradient && row.unit > 1;
    if (!of_others || row.name == "layers.1.d_output") bytes += padded_bytes(row);
  }
  // The embedding's has no other size than a block's, and so no slot of its own. The first two take
  // the place of what the head has read by then.
  for (const ActivationSpec& row : stage.activations) {
    if (row.name == "embedding.d_output") bytes -= 3 * padded_bytes(row);
  }
  CHECK(stage.activation_slots.bytes == bytes);
}

TEST_CASE("full recomputation keeps inputs and one layer", "[slots]") {
  Config config = small_config();
  const std::int64_t usual = plan_of(config).stages.front().activation_slots.bytes;
  config.recompute.enable = true;
  const Plan plan = plan_of(config);
  const StagePlan& stage = plan.stages.front();
  std::int64_t layer = 0;
  for (const ActivationSpec& row : stage.activations) {
    if (row.storage == Storage::repeated && row.unit == 1 && row.from == Moment::repeat) {
      layer += padded_bytes(row);
    }
  }
  CHECK(stage.activation_slots.bytes == usual - (plan.model.layers - 1) * layer);
}

TEST_CASE("idle times of the schedules that fill the bubble", "[slots]") {
  const PipelineSizes one{.stages = 4, .microbatches = 16};
  const PipelineSizes two{.stages = 4, .chunks = 2, .microbatches = 16};
  const double usual = idle_seconds(Scheduler::one_f_one_b, one);
  CHECK(usual == Approx(9));
  CHECK(idle_seconds(Scheduler::zb_h1, one) <= 0.34 * usual);
  CHECK(idle_seconds(Scheduler::one_f_one_b, two) <= 0.51 * usual);
  CHECK(idle_seconds(Scheduler::zb_h1, two) <= 0.34 * usual);
  CHECK(idle_seconds(Scheduler::zb_v, two) == Approx(1.5));  // 3 of 99 half-stage passes
}

TEST_CASE("schedules that delay W need no more memory than 1F1B", "[slots]") {
  const std::int64_t usual = peak_of(Scheduler::one_f_one_b, 1, 16);
  const auto share = [&](Scheduler scheduler, std::int64_t chunks) {
    return static_cast<double>(peak_of(scheduler, chunks, 16)) / static_cast<double>(usual);
  };
  CHECK(share(Scheduler::zb_h1, 1) <= 1.05);
  CHECK(share(Scheduler::zb_v, 2) <= 1.05);
  CHECK(share(Scheduler::zb_h1, 1) >= 0.95);
}
