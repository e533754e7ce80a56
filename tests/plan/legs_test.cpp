// Passes whose legs alternate with those of another micro-batch: rows, their proof, memory and
// time.
#include <algorithm>

#include "base/at.h"
#include "catch.h"
#include "plan/cost/estimate.h"
#include "plan/cost/step_time.h"
#include "ranks.h"
#include "sample.h"

using namespace trainctl;

namespace {

/// Four micro-batches; two layers of experts on two ranks of each of `stages` stages.
Config beside(bool on, std::int64_t stages = 1, std::int64_t chunks = 1) {
  Config config = small_config();
  config.train.global_batch_size = 8;
  config.train.micro_batch_size = 1;
  config.moe.num_experts = 4;
  config.moe.router_topk = 2;
  config.parallel.expert_parallel = 2;
  config.parallel.pipeline_stages = stages;
  config.parallel.virtual_pipeline_stages = chunks;
  config.moe.overlap_expert_parallel_comm = on;
  return config;
}

/// Refined rows of a stage whose units from `first` on run in legs.
std::vector<Action> rows_in_legs(ScheduleInput input, int first) {
  for (int unit = 0; unit < input.units.back().end; ++unit) input.legs.push_back(unit >= first);
  return refine(make_schedule(PipelineScheduler::one_f_one_b, input), input, {});
}

Simulation play_changed(const std::vector<Action>& rows, int microbatches, int width) {
  Ranks ranks;
  ranks.ranks.push_back({stage_input({.microbatches = microbatches, .width = width}, 0), 0, 0, {}});
  ranks.rows.push_back(rows);
  return ranks.play();
}

std::int64_t bytes_of(const Plan& plan, Storage storage) {
  const StagePlan& stage = plan.stages.front();
  std::vector<char> counted(stage.activation_slots.pools.size());
  std::int64_t bytes = 0;
  for (std::size_t row = 0; row < stage.activations.size(); ++row) {
    const int group = stage.activation_slots.rows[row].group;
    const int pool = at(stage.activation_slots.groups, group).pool;
    if (stage.activations[row].storage != storage || at(counted, pool) != 0) continue;
    at(counted, pool) = 1;
    bytes +=
        at(stage.activation_slots.pools, pool).bytes * at(stage.activation_slots.pools, pool).slots;
  }
  return bytes;
}

}  // namespace

TEST_CASE("two passes take turns whenever rows are on their way") {
  const auto rows = rows_in_legs(stage_input({.microbatches = 2, .width = 3}, 0), 1);
  CHECK(texts(rows) == Texts{"fetch 0.0",      "F0.0[0,3)",      "fetch 1.0",
                             "B0.0[2,3) out",  "F1.0[0,1)",      "F1.0[1,2) out",
                             "B0.0[2,3) work", "F1.0[1,2) work", "B0.0[2,3) home",
                             "W0.0[2,3)",      "B0.0[1,2) out",  "F1.0[1,2) home",
                             "F1.0[2,3) out",  "B0.0[1,2) work", "F1.0[2,3) work",
                             "B0.0[1,2) home", "W0.0[1,2)",      "B0.0[0,1)",
                             "W0.0[0,1)",      "F1.0[2,3) home", "B1.0[2,3)",
                             "W1.0[2,3)",      "B1.0[1,2)",      "W1.0[1,2)",
                             "B1.0[0,1)",      "W1.0[0,1)",      "step"});
}

TEST_CASE("what is left of one pass runs by itself") {
  Action a{.kind = ActionKind::forward, .begin = 1, .end = 2};
  Action b{.kind = ActionKind::backward_input, .begin = 1, .end = 2};
  const auto legs = [](Action row) {
    std::vector<Action> all;
    for (const ExchangePhase leg : {ExchangePhase::out, ExchangePhase::work, ExchangePhase::home}) {
      row.leg = leg;
      all.push_back(row);
    }
    return all;
  };
  CHECK(in_turns({b}, legs(a)).size() == 4);
  CHECK(texts(in_turns(legs(b), {a})) ==
        Texts{"B0.0[1,2) out", "F0.0[1,2)", "B0.0[1,2) work", "B0.0[1,2) home"});
  CHECK(in_turns({}, {}).empty());
}

TEST_CASE("legs of layers that are recomputed: only where their rows are sent again") {
  for (const bool mlp : {false, true}) {
    ScheduleInput input = stage_input({.microbatches = 2, .width = 2}, 0);
    input.legs = {0, 1};
    BlockForm form;
    form.repeated = bit_of(mlp ? BlockPart::mlp : BlockPart::norm1);
    input.forms.usual[1] = form;
    const auto rows =
        texts(refine(make_schedule(PipelineScheduler::one_f_one_b, input), input, {}));
    CHECK(std::count(rows.begin(), rows.end(), "R0.0[1,2) out") == (mlp ? 1 : 0));
    CHECK(std::count(rows.begin(), rows.end(), "R0.0[1,2) work") == (mlp ? 1 : 0));
    CHECK(std::count(rows.begin(), rows.end(), "R0.0[1,2)") == (mlp ? 0 : 1));
    CHECK(std::count(rows.begin(), rows.end(), "R1.0[1,2)") == 1);
  }
}

TEST_CASE("pipelines with legs are proven, with one forward more in their warm-up") {
  for (const int stages : {1, 2, 4}) {
    for (const int chunks : {1, 2, 3}) {
      for (const int microbatches : {4, 8}) {
        for (const MessageMode mode :
             {MessageMode::batched, MessageMode::single, MessageMode::overlapped}) {
          if (stages == 1 && chunks > 1) continue;
          CAPTURE(stages, chunks, microbatches, static_cast<int>(mode));
          const PipelineSizes sizes{
              .stages = stages, .chunks = chunks, .microbatches = microbatches, .width = 2};
          SamplePipeline pipeline;
          pipeline.inner = 2;
          for (int stage = 0; stage < stages; ++stage) {
            ScheduleInput input = stage_input(sizes, stage);
            input.messages.mode = mode;
            input.legs.assign(static_cast<std::size_t>(2 * stages * chunks), 1);
            const auto rows =
                arrange_messages(make_schedule(PipelineScheduler::one_f_one_b, input), input);
            const int most = microbatches * chunks;
            const int before =
                stages == 1 ? 1 : 2 * (stages - stage - 1) + (chunks - 1) * stages + 1;
            CHECK(warmup_forwards(rows) == (before + 1 >= most ? most : before));
            pipeline.inputs.push_back(input);
            pipeline.rows.push_back(refine(rows, input, {}));
            const auto open =
                std::count_if(pipeline.rows.back().begin(), pipeline.rows.back().end(),
                              [](const Action& row) { return row.leg == ExchangePhase::out; });
            // Two for each pair of passes, in each of two layers.
            CHECK(open == 2 * 2 * std::max(0, most - before));
          }
          const SimulationInput input = pipeline.simulation();
          const Simulation played = simulate(input);
          CHECK(first_of(played.violations).empty());
          // A first leg only waits for a message.
          for (const QueueTimes& times : played.queues) CHECK(times.waited_rows == 0);
        }
      }
    }
  }
}

TEST_CASE("mistakes in legs are found by the proof") {
  const auto rows = rows_in_legs(stage_input({.microbatches = 2, .width = 2}, 0), 1);
  CHECK(play_changed(rows, 2, 2).violations.empty());
  auto swapped = rows;
  exchange(swapped, "F1.0[1,2) work", "F1.0[1,2) home");
  CHECK(mentions(play_changed(swapped, 2, 2), "must come after F1.0[1,2) work"));
  auto early = rows;
  exchange(early, "B0.0[1,2) out", "B0.0[1,2) work");
  CHECK(mentions(play_changed(early, 2, 2), "must come after B0.0[1,2) out"));
  auto missing = rows;
  drop(missing, "B0.0[1,2) home");
  CHECK(mentions(play_changed(missing, 2, 2), "begins before the next leg of B0.0[1,2) work"));
  auto weight = rows;
  exchange(weight, "B0.0[1,2) home", "W0.0[1,2)");
  CHECK(mentions(play_changed(weight, 2, 2), "W before B"));
  auto wide = rows;
  wide[index_of(wide, "F1.0[1,2) out")].begin = 0;
  CHECK(mentions(play_changed(wide, 2, 2), "a leg is of one unit"));
}

TEST_CASE("rows on their way take no time during a pass that takes longer") {
  ScheduleInput input = stage_input({.microbatches = 5, .width = 2}, 0);
  input.legs = {1, 1};
  const auto rows = refine(make_schedule(PipelineScheduler::one_f_one_b, input), input, {});
  SimulationInput simulation;
  simulation.ranks.push_back({input, 0, 0, rows});
  simulation.cost = [](const RankRows&, const Action& row) {
    return is_pass(row.kind) && row.kind != ActionKind::backward_weight ? 1.0 : 0.0;
  };
  for (const double sent : {0.0, 0.5, 1.0, 3.0}) {
    simulation.sent = [sent](const RankRows&, const Action&) { return sent; };
    const QueueTimes times = simulate(simulation).queues.front();
    // Four pairs of passes through two layers, each of which sends four times; the legs that they
    // overlap take one second or more, and the last rows of a pair overlap nothing.
    CHECK(times.sent_rows == Approx(4 * 2 * 4 * sent));
    if (sent <= 1) CHECK(times.waited_rows == Approx(0).margin(1e-9));
    if (sent > 1) CHECK(times.waited_rows > 0);
    CHECK(times.waited_rows <= times.sent_rows);
  }
}

TEST_CASE("rows on their way have memory of their own while a pass is open") {
  const Plan usual = plan_of(beside(false), 2);
  const Plan legs = plan_of(beside(true), 2);
  CHECK(bytes_of(usual, Storage::exchanged) == 0);
  const LocalShape local = legs.local_of(1);
  const std::int64_t element = size_of(legs.compute);
  const std::int64_t once =
      (local.routed_rows + local.gathered_rows) * (legs.model.hidden * element + 4) +
      local.gathered_rows * 4;
  // Once for F and once for B.
  CHECK(bytes_of(legs, Storage::exchanged) >= 2 * once);
  CHECK(bytes_of(legs, Storage::exchanged) <= 2 * (once + 5 * 64));
  CHECK(legs.stages.front().slots == usual.stages.front().slots + 1);
  CHECK(legs.hash != usual.hash);
}

TEST_CASE("the planned time has what rows wait for, and what is hidden") {
  for (const std::int64_t stages : {1, 2}) {
    CAPTURE(stages);
    const Plan usual = plan_of(beside(false, stages), 2 * stages);
    const Plan legs = plan_of(beside(true, stages), 2 * stages);
    // Rows take as long as the products of experts.
    Rates rates{.matmul_flops = 1e11, .memory_bandwidth = 1e14, .latency = 0, .bandwidth = 1e10};
    const auto share = [&](const Plan& plan) { return estimate_time(plan, rates); };
    CHECK(share(usual).hidden == 0);
    CHECK(share(legs).hidden > 0);
    double all = 0;
    for (const CollectiveUse& use : legs.stages.front().communication) {
      if (use.operation == GroupOperation::all_to_all) all += wire_seconds(use, rates);
    }
    CHECK(share(legs).hidden <= all);
    if (stages == 1) {
      CHECK(share(legs).forward_backward ==
            Approx(share(usual).forward_backward - share(legs).hidden));
      CHECK(share(legs).hidden > 0.6 * all);
    }
    CHECK(share(legs).forward_backward < share(usual).forward_backward);
  }
}
