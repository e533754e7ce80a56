// Steps whose number of micro-batches grows: what the engine does between them.
#include <cmath>
#include <memory>

#include "base/at.h"
#include "catch.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

/// Batches of 2, 2 and 4 sequences, then 8: no step begins where the batch would have 6.
const std::vector<std::string> ramp{"train.rampup_batch_size=[2, 2, 7]",
                                    "train.micro_batch_size=1"};

std::vector<std::string> with(std::vector<std::string> options) {
  options.insert(options.begin(), ramp.begin(), ramp.end());
  return options;
}

}  // namespace

TEST_CASE("every layout trains a ramp as one rank does", "[threads]") {
  const auto alone = train_sample({.set_options = ramp, .ranks = 1, .steps = 6, .world = {}});
  std::vector<std::int64_t> batches;
  std::int64_t tokens = 0;
  for (const StepReport& report : alone) {
    REQUIRE(report.batch_size);
    batches.push_back(*report.batch_size);
    tokens += 16 * *report.batch_size;
    CHECK(report.tokens == tokens);
  }
  CHECK(batches == std::vector<std::int64_t>{2, 2, 4, 8, 8, 8});
  struct Layout {
    int ranks;
    std::vector<std::string> options;
  };
  const Layout layouts[] = {
      {2, {}},
      {2, {"parallel.pipeline_stages=2"}},
      {2, {"parallel.pipeline_stages=2", "parallel.pipeline.scheduler=gpipe"}},
      {2, {"parallel.pipeline_stages=2", "parallel.pipeline.scheduler=zb-h1"}},
      {4, {"parallel.pipeline_stages=2", "hooks.no_sync=never"}},
      {2, {"hooks.no_sync=never"}},
  };
  for (const Layout& layout : layouts) {
    CAPTURE(layout.options);
    const auto reports = train_sample(
        {.set_options = with(layout.options), .ranks = layout.ranks, .steps = 6, .world = {}});
    REQUIRE(reports.size() == alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CHECK(reports[i].batch_size == alone[i].batch_size);
      CHECK(std::abs(reports[i].loss - alone[i].loss) < 2e-6 * alone[i].loss);
      CHECK(std::abs(reports[i].grad_norm - alone[i].grad_norm) < 1e-4 * alone[i].grad_norm);
    }
  }
}

TEST_CASE("a trace keeps the steps with the rows of now") {
  std::unique_ptr<Trace> trace;
  SampleRun run{.set_options = ramp, .ranks = 1, .steps = 6, .world = {}};
  run.make_trace = [&](const World& world, const Plan& plan) {
    trace = std::make_unique<Trace>(plan.stage_of(world.rank()).actions, 16);
    return trace.get();
  };
  run.inspect = [&](Engine& engine, const Plan& plan, World&) {
    CHECK(&engine.plan() == &plan);
    CHECK(plan.smaller.size() == 2);  // 2 and 4: no step has 6
    CHECK(trace->completed_steps() == 6);
    CHECK(trace->first_kept_step() == 4);
    CHECK(trace->step(6).size() == plan.stage_of(0).actions.size());
  };
  train_sample(run);
}

TEST_CASE("memory is that of the largest batch") {
  SampleRun run{
      .set_options = with({"parallel.pipeline_stages=2"}), .ranks = 2, .steps = 1, .world = {}};
  run.inspect = [](Engine& engine, const Plan& plan, World& world) {
    const MemoryEstimate& planned = plan.stage_of(world.rank()).memory;
    CHECK(engine.memory().activations == planned.activations);
    CHECK(engine.memory().total() <= planned.total());
    CHECK(&engine.plan() == &plan.smaller.front());
    for (const Plan& smaller : plan.smaller) {
      const std::int64_t rank = world.rank();
      CHECK(smaller.stage_of(rank).activation_slots.bytes <= plan.activation_bytes(world.rank()));
      CHECK(smaller.stage_of(rank).memory.total() == planned.total());
    }
  };
  train_sample(run);
}
