// Forward passes of evaluation and generation: their proof, what they gather, and where decoding
// lays its activations.
#include <algorithm>

#include "base/at.h"
#include "catch.h"
#include "pipeline.h"
#include "plan/cost/forms.h"
#include "sample.h"

using namespace trainctl;

namespace {

ScheduleInput forward_stage(const PipelineSizes& sizes, int stage, MessageMode mode,
                            ChunkRoute route = "round_robin") {
  ScheduleInput input = stage_input(sizes, stage, route);
  input.messages.mode = mode;
  input.forward_only = true;
  return input;
}

SamplePipeline forward_passes(const PipelineSizes& sizes, MessageMode mode, ChunkRoute route) {
  SamplePipeline pipeline;
  pipeline.inner = 2;
  for (int stage = 0; stage < sizes.stages; ++stage) {
    pipeline.inputs.push_back(forward_stage(sizes, stage, mode, route));
    pipeline.rows.push_back(schedule_forward_only(pipeline.inputs.back()));
  }
  return pipeline;
}

Simulation passed(const SamplePipeline& pipeline) {
  SimulationInput input = pipeline.simulation();
  input.cost = unit_cost;
  return simulate(input);
}

std::int64_t decoding_bytes(std::int64_t layers) {
  Config config = small_config();
  config.model.num_layers = layers;
  return decoding_plan(plan_of(config), 16, 64).activation_bytes(0);
}

}  // namespace

TEST_CASE("a forward pass is legal on every pipeline") {
  for (const MessageMode mode :
       {MessageMode::single, MessageMode::batched, MessageMode::overlapped}) {
    for (int stages = 1; stages <= 4; ++stages) {
      for (int chunks = 1; chunks <= 3; ++chunks) {
        const SamplePipeline pipeline =
            forward_passes({.stages = stages, .chunks = chunks, .width = 2}, mode, "round_robin");
        const Simulation result = passed(pipeline);
        INFO(stages << " stages, " << chunks << " chunks: " << first_of(result.violations));
        CHECK(result.violations.empty());
        CHECK(result.seconds == Approx(2.0 * stages * chunks));  // one unit after another
      }
    }
  }
}

TEST_CASE("what is wrong in a forward pass is named") {
  const PipelineSizes sizes{.stages = 2, .width = 2};
  const SamplePipeline good = forward_passes(sizes, MessageMode::single, "round_robin");
  CHECK(texts(good.rows[0]) == Texts{"fetch 0.0", "F0.0[0,2)", "send_forward 0.0"});
  SamplePipeline cut = good;
  cut.rows[0][1].end = 1;
  CHECK(first_of(passed(cut).violations).find("send_forward 0.0: is sent before F has made it") !=
        std::string::npos);
  SamplePipeline unsent = good;
  unsent.rows[0].pop_back();
  CHECK(first_of(passed(unsent).violations).find("is never sent") != std::string::npos);
  SamplePipeline back = good;
  back.rows[1].push_back({.kind = ActionKind::backward_input, .begin = 2, .end = 4});
  CHECK(first_of(passed(back).violations).find("is not of a forward pass") != std::string::npos);
  SamplePipeline idle = good;
  idle.rows[1].pop_back();
  CHECK(first_of(passed(idle).violations).find("F of all units of chunk 0 has not run") !=
        std::string::npos);
}

TEST_CASE("a forward pass gathers only what is freed, for one use at a time") {
  const ScheduleInput input = forward_stage({.width = 3}, 0, MessageMode::single);
  const std::vector<GatherBlock> blocks{
      {.units = {0, 1}, .freed = true}, {.units = {1, 2}}, {.units = {2, 3}, .freed = true}};
  const std::vector<GatherBlock> reads = freed_only(blocks);
  const std::vector<Action> rows =
      gather_freed(refine(schedule_forward_only(input), input, {}, reads), reads, 0);
  CHECK(texts(rows) == Texts{"gather 0", "fetch 0.0", "wait_gather 0", "F0.0[0,1)", "free 0",
                             "gather 2", "F0.0[1,2)", "wait_gather 2", "F0.0[2,3)", "free 2"});
}

TEST_CASE("the forward pass of a plan is that of its stage") {
  Config config = small_config();
  config.parallel.parallel_optimizer.enable = true;
  config.parallel.parallel_optimizer.optimizer_level = OptimizerLevel("level3");
  config.parallel.parallel_optimizer.threshold = 0;
  const Plan plan = plan_of(config, 2);
  const std::vector<Action>& rows = plan.stages.front().forward_actions;
  const auto of_kind = [&](ActionKind kind) {
    return std::count_if(rows.begin(), rows.end(),
                         [&](const Action& row) { return row.kind == kind; });
  };
  CHECK(of_kind(ActionKind::fetch) == 1);
  // Each unit is gathered once, and for the head the embedding's matrix once more.
  CHECK(of_kind(ActionKind::gather) == plan.units() + 1);
  CHECK(of_kind(ActionKind::free) == plan.units() + 1);
  CHECK(of_kind(ActionKind::step) == 0);
}

TEST_CASE("what a chunk is fed stays until its last unit, what a unit makes only until the next") {
  const ScheduleInput input = forward_stage({.width = 4}, 0, MessageMode::single);
  const auto row = [](const char* name, int unit, Storage storage, Moment from, Moment until) {
    return ActivationSpec{name, {16}, DType::f32, storage, from, until, unit, 0};
  };
  const std::vector<ActivationSpec> table{
      row("position", 0, Storage::batch, Moment::fetch, Moment::backward),
      row("input of 1", 1, Storage::input, Moment::input, Moment::backward),
      row("input of 2", 2, Storage::input, Moment::input, Moment::weight),
      row("input of 3", 3, Storage::input, Moment::input, Moment::backward)};
  const ActivationSlots slots = assign_slots(table, schedule_forward_only(input), input);
  for (std::size_t one = 1; one < table.size(); ++one) {
    INFO(table[one].name);
    CHECK(slots.place(one, 0) != slots.place(0, 0));
  }
  CHECK(slots.place(1, 0) != slots.place(2, 0));
  CHECK(slots.place(2, 0) != slots.place(3, 0));
  CHECK(slots.place(1, 0) == slots.place(3, 0));
}

TEST_CASE("layers take turns in the memory of decoding") {
  CHECK(decoding_bytes(6) == decoding_bytes(3));
  const Plan plan = decoding_plan(plan_of(small_config()), 16, 64);
  const StagePlan& rows = plan.stages.front();
  const auto place = [&](int unit) {
    const int row = rows.declared.block(unit, false).input.later;
    return rows.activation_slots.place(static_cast<std::size_t>(row), 0);
  };
  CHECK(place(1) != place(2));  // a block reads its input and writes the next one's
  CHECK(place(1) == place(3));
  CHECK(plan.model.positions == 64);
  CHECK(plan.stages.front().activations.at(0).shape.numel() == 16);
}
