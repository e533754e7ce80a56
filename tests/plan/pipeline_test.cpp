#include "pipeline.h"

#include <algorithm>
#include <map>

#include "catch.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/wait_graph.h"
#include "thorough.h"

using namespace trainctl;

namespace {

using Texts = std::vector<std::string>;
using Scheduler = PipelineScheduler;

/// Group sizes that Megatron accepts for `microbatches` on `stages`.
std::vector<int> legal_groups(int stages, int microbatches) {
  std::vector<int> groups;
  for (int group = stages; group <= microbatches; ++group) {
    const int rest = microbatches % group;
    if (rest == 0 || rest >= stages) groups.push_back(group);
  }
  return groups;
}

/// megatron.core's schedule, written from its description: what rank r runs, without messages.
Texts reference_order(const PipelineSizes& sizes, int rank) {
  std::vector<std::pair<int, int>> table;  // (micro-batch, chunk)
  const int group = sizes.group_size > 0 ? sizes.group_size : sizes.stages;
  for (int begin = 0; begin < sizes.microbatches; begin += group) {
    for (int chunk = 0; chunk < sizes.chunks; ++chunk) {
      for (int m = begin; m < std::min(begin + group, sizes.microbatches); ++m) {
        table.emplace_back(m, chunk);
      }
    }
  }
  const int total = sizes.microbatches * sizes.chunks;
  const int after = sizes.stages - rank - 1;
  const int warmup =
      std::min(total, sizes.chunks == 1 ? after : 2 * after + (sizes.chunks - 1) * group);
  Texts order;
  const auto add = [&](char kind, int k) {
    const auto [m, c] = table[static_cast<std::size_t>(k)];
    const int chunk = kind == 'F' ? c : sizes.chunks - 1 - c;
    order.push_back(kind + std::to_string(m) + "." + std::to_string(chunk));
  };
  for (int k = 0; k < warmup; ++k) add('F', k);
  for (int k = 0; k < total; ++k) {
    if (warmup + k < total) add('F', warmup + k);
    add('B', k);
  }
  return order;
}

void check_order(const std::vector<Action>& rows, const PipelineSizes& sizes) {
  // As Megatron's own test of its order: balanced, and no backward before its forward.
  std::map<std::pair<int, int>, int> alive;
  std::size_t count = 0;
  for (const Action& row : only(rows, ActionKind::forward, ActionKind::backward_input)) {
    int& now = alive[{row.chunk, row.microbatch}];
    now += row.kind == ActionKind::forward ? 1 : -1;
    REQUIRE((now == 0 || now == 1));
    ++count;
  }
  REQUIRE(count == static_cast<std::size_t>(2 * sizes.microbatches * sizes.chunks));
  REQUIRE(std::all_of(alive.begin(), alive.end(), [](const auto& one) { return one.second == 0; }));
}

/// Plays one pipeline; counts instead of checking each, so that sweeps stay fast.
struct Sweep {
  int played = 0;
  std::string wrong;  // the first

  Simulation play(Scheduler scheduler, const PipelineSizes& sizes) {
    const ScheduleTraits& traits = traits_of(scheduler);
    const bool single = !traits.batches || (traits.apart && sizes.chunks > 1);
    return play(scheduler, sizes, single ? MessageMode::single : MessageMode::batched);
  }
  Simulation play(Scheduler scheduler, const PipelineSizes& sizes, MessageMode mode) {
    SamplePipeline pipeline(scheduler, sizes);
    for (std::size_t stage = 0; stage < pipeline.rows.size(); ++stage) {
      ScheduleInput& input = pipeline.inputs[stage];
      input.messages = {.mode = mode, .keeps_outputs = true};
      pipeline.rows[stage] = arrange_messages(make_schedule(scheduler, input), input);
    }
    SimulationInput input = pipeline.simulation();
    input.cost = unit_cost;
    Simulation result = simulate(input);
    input.on_devices = input.hosts_meet = true;
    for (const std::string& one : simulate(input).violations) result.violations.push_back(one);
    ++played;
    if (!result.violations.empty() && wrong.empty()) {
      wrong = "pp " + std::to_string(sizes.stages) + " vp " + std::to_string(sizes.chunks) + " M " +
              std::to_string(sizes.microbatches) + " N " + std::to_string(sizes.group_size) + ": " +
              result.violations.front();
    }
    return result;
  }
};

}  // namespace

TEST_CASE("Megatron's schedule tables", "[pipeline]") {
  const auto shown = [](int microbatches, int chunks, int group) {
    std::pair<std::string, std::string> text;
    for (const Action& entry : schedule_table(microbatches, chunks, group)) {
      text.first += std::to_string(entry.microbatch) + " ";
      text.second += std::to_string(entry.chunk) + " ";
    }
    return text;
  };
  CHECK(shown(4, 2, 2) ==
        std::pair<std::string, std::string>{"0 1 0 1 2 3 2 3 ", "0 0 1 1 0 0 1 1 "});
  CHECK(shown(5, 2, 3) ==
        std::pair<std::string, std::string>{"0 1 2 0 1 2 3 4 3 4 ", "0 0 0 1 1 1 0 0 1 1 "});
  CHECK(shown(3, 1, 7).first == "0 1 2 ");
}

TEST_CASE("warm-up counts", "[pipeline]") {
  const auto warmup = [](Scheduler scheduler, const PipelineSizes& sizes, int stage) {
    return warmup_forwards(
        make_schedule(scheduler, stage_input(sizes, stage, traits_of(scheduler).route)));
  };
  const PipelineSizes uneven{.stages = 2, .chunks = 2, .microbatches = 5, .group_size = 3};
  CHECK(warmup(Scheduler::one_f_one_b, uneven, 0) == 5);
  CHECK(warmup(Scheduler::one_f_one_b, uneven, 1) == 3);
  CHECK(warmup(Scheduler::gpipe, uneven, 1) == 10);
  const PipelineSizes four{.stages = 4, .microbatches = 8};
  CHECK(warmup(Scheduler::one_f_one_b, four, 0) == 3);
  CHECK(warmup(Scheduler::one_f_one_b, four, 3) == 0);
  CHECK(warmup(Scheduler::zb_h1, four, 1) == 2);
  CHECK(warmup(Scheduler::one_f_one_b, {.stages = 4, .microbatches = 2}, 0) == 2);
  CHECK(warmup(Scheduler::one_f_one_b, {.stages = 4, .chunks = 4, .microbatches = 4}, 0) == 16);
  CHECK(warmup(Scheduler::one_f_one_b, {.stages = 1, .microbatches = 9}, 0) == 0);
  CHECK(warmup(Scheduler::zb_v, {.stages = 4, .chunks = 2, .microbatches = 8}, 0) == 7);
}

TEST_CASE("schedules have their names", "[pipeline]") {
  CHECK(schedule_name(Scheduler::gpipe, 1, 1) == "none");
  CHECK(schedule_name(Scheduler::gpipe, 2, 2) == "gpipe");
  CHECK(schedule_name(Scheduler::one_f_one_b, 2, 1) == "1f1b");
  CHECK(schedule_name(Scheduler::one_f_one_b, 2, 2) == "interleaved_1f1b");
  CHECK(schedule_name(Scheduler::zb_h1, 2, 1) == "zb_h1");
  CHECK(schedule_name(Scheduler::zb_h1, 2, 3) == "interleaved_zb_h1");
  CHECK(schedule_name(Scheduler::zb_v, 2, 2) == "zb_v");
}

TEST_CASE("1F1B of two stages, row by row", "[pipeline]") {
  const SamplePipeline pipeline(Scheduler::one_f_one_b, {.stages = 2, .microbatches = 3});
  CHECK(short_names(pipeline.rows[0]) ==
        Texts{"fetch 0.0", "F0.0", "fetch 1.0", "send_forward 0.0", "F1.0", "send_forward 1.0",
              "receive_backward 0.0", "B0.0", "W0.0", "fetch 2.0", "F2.0", "send_forward 2.0",
              "receive_backward 1.0", "B1.0", "W1.0", "receive_backward 2.0", "B2.0", "W2.0",
              "step"});
  CHECK(short_names(pipeline.rows[1]) ==
        Texts{"fetch 0.0", "receive_forward 0.0", "F0.0", "B0.0", "W0.0", "fetch 1.0",
              "send_backward 0.0", "receive_forward 1.0", "F1.0", "B1.0", "W1.0", "fetch 2.0",
              "send_backward 1.0", "receive_forward 2.0", "F2.0", "B2.0", "W2.0",
              "send_backward 2.0", "step"});
}

TEST_CASE("interleaved chunks in Megatron's worked examples", "[pipeline]") {
  const auto order = [](const PipelineSizes& sizes, std::size_t stage) {
    const SamplePipeline pipeline(Scheduler::one_f_one_b, sizes);
    return short_names(only(pipeline.rows[stage], ActionKind::forward, ActionKind::backward_input));
  };
  const PipelineSizes even{.stages = 2, .chunks = 2, .microbatches = 4};
  CHECK(order(even, 0) == Texts{"F0.0", "F1.0", "F0.1", "F1.1", "F2.0", "B0.1", "F3.0", "B1.1",
                                "F2.1", "B0.0", "F3.1", "B1.0", "B2.1", "B3.1", "B2.0", "B3.0"});
  CHECK(order(even, 1) == Texts{"F0.0", "F1.0", "F0.1", "B0.1", "F1.1", "B1.1", "F2.0", "B0.0",
                                "F3.0", "B1.0", "F2.1", "B2.1", "F3.1", "B3.1", "B2.0", "B3.0"});
  const PipelineSizes uneven{.stages = 2, .chunks = 2, .microbatches = 5, .group_size = 3};
  const Texts first = order(uneven, 0);
  CHECK(Texts(first.begin(), first.begin() + 7) ==
        Texts{"F0.0", "F1.0", "F2.0", "F0.1", "F1.1", "F2.1", "B0.1"});
  CHECK(order(uneven, 1)[4] == "B0.1");
}

namespace {

/// Sizes of a sweep: all of 1 to `most`, or some of them.
std::vector<int> sizes_to(int most, const std::vector<int>& some) {
  std::vector<int> sizes;
  for (int size = 1; size <= most; ++size) {
    if (thorough() || std::find(some.begin(), some.end(), size) != some.end()) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

}  // namespace

TEST_CASE("orders equal Megatron's for every rank", "[pipeline]") {
  for (int stages : {2, 3, 4, 8}) {
    for (int chunks : {1, 2, 3, 4, 8}) {
      for (int microbatches :
           thorough() ? std::vector<int>{8, 11, 16, 32} : std::vector<int>{8, 11}) {
        for (int group :
             chunks == 1 ? std::vector<int>{stages} : legal_groups(stages, microbatches)) {
          const PipelineSizes sizes{stages, chunks, microbatches, group};
          const SamplePipeline pipeline(Scheduler::one_f_one_b, sizes);
          for (int rank = 0; rank < stages; ++rank) {
            const auto& rows = pipeline.rows[static_cast<std::size_t>(rank)];
            check_order(rows, sizes);
            REQUIRE(short_names(only(rows, ActionKind::forward, ActionKind::backward_input)) ==
                    reference_order(sizes, rank));
          }
        }
      }
    }
  }
}

TEST_CASE("every schedule with its least number of chunks is proven for every size", "[pipeline]") {
  Sweep sweep;
  for (int stages : sizes_to(16, {1, 2, 3, 4, 7, 8, 16})) {
    for (int microbatches : sizes_to(64, {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64})) {
      const PipelineSizes sizes{.stages = stages, .microbatches = microbatches};
      REQUIRE(sweep.play(Scheduler::gpipe, sizes).peak_microbatches ==
              (stages == 1 ? 1 : microbatches));
      const int most = std::min(stages, microbatches);
      for (const ScheduleTraits& schedule : schedules) {
        if (stages == 1) break;
        sweep.play(schedule.value, {stages, schedule.min_chunks, microbatches});
      }
      REQUIRE(sweep.play(Scheduler::one_f_one_b, sizes).peak_microbatches == most);
      REQUIRE(sweep.play(Scheduler::zb_h1, sizes).peak_microbatches <= most);
      for (int stage = 0; stage < stages; ++stage) {
        REQUIRE(
            peak_microbatches(make_schedule(Scheduler::one_f_one_b, stage_input(sizes, stage))) ==
            std::min(stages - stage, microbatches));
      }
    }
  }
  INFO(sweep.wrong);
  CHECK(sweep.wrong.empty());
  CHECK(sweep.played > tries(250, 1000));
}

TEST_CASE("chunks are proven for every legal group size", "[pipeline]") {
  Sweep sweep;
  for (int stages : brief() ? std::vector<int>{3} : sizes_to(16, {2, 3, 4, 7, 8})) {
    if (stages == 1) continue;
    for (int chunks = 2; chunks <= 4; ++chunks) {
      for (int microbatches : {stages, stages + 1, 2 * stages, 3 * stages - 1, 29, 64}) {
        for (int group : legal_groups(stages, microbatches)) {
          const bool corner = group <= stages + 1 || group + 1 >= microbatches || group % 8 == 5;
          if (!corner) continue;
          for (const ScheduleTraits& schedule : schedules) {
            if (!schedule.groups) continue;
            for (const auto mode :
                 {MessageMode::batched, MessageMode::single, MessageMode::overlapped}) {
              sweep.play(schedule.value, {stages, chunks, microbatches, group}, mode);
            }
          }
        }
      }
      for (int microbatches : {1, 2, 3, 5, 16, 19}) {
        sweep.play(Scheduler::gpipe, {stages, chunks, microbatches});
      }
    }
  }
  INFO(sweep.wrong);
  CHECK(sweep.wrong.empty());
  CHECK(sweep.played > tries(200, 800));
}

TEST_CASE("bubbles are the papers'", "[pipeline]") {
  Sweep sweep;
  for (int stages : {2, 4, 7}) {
    for (int microbatches : {stages, 2 * stages, 5 * stages}) {
      const double work = 3.0 * microbatches;
      const PipelineSizes one{.stages = stages, .microbatches = microbatches};
      for (const Scheduler scheduler : {Scheduler::gpipe, Scheduler::one_f_one_b}) {
        const Simulation result = sweep.play(scheduler, one);
        CHECK(result.seconds == Approx(work + 3 * (stages - 1)));
        CHECK(result.bubble_fraction ==
              Approx((stages - 1.0) / (microbatches + stages - 1.0)).epsilon(1e-9));
      }
      // (p - 1)(F + B - W), a third of the above.
      const double zero_bubble = sweep.play(Scheduler::zb_h1, one).seconds;
      INFO("pp " << stages << " M " << microbatches);
      CHECK(zero_bubble == Approx(work + stages - 1));
      // With half as much work in each row: the bound is the least that its first forward takes to
      // come back up.
      const Simulation v = sweep.play(Scheduler::zb_v, {stages, 2, microbatches});
      CHECK(v.seconds >= 2 * work + stages - 1);
      CHECK(v.seconds <= 2 * work + 2 * (stages - 1));
      for (int chunks : {2, 4}) {
        const Simulation result =
            sweep.play(Scheduler::one_f_one_b, {stages, chunks, microbatches});
        CHECK(result.seconds == Approx(chunks * work + 3 * (stages - 1)));
        const PipelineSizes sizes{stages, chunks, microbatches};
        const double least = chunks * work + stages - 1;
        CHECK(sweep.play(Scheduler::zb_h1, sizes).seconds == Approx(least));
        const Simulation batched = sweep.play(Scheduler::zb_h1, sizes, MessageMode::batched);
        CHECK(batched.seconds <= least + stages - 1);
        CHECK(batched.peak_microbatches <= result.peak_microbatches);
      }
    }
  }
  CHECK(sweep.wrong.empty());
}

TEST_CASE("W of ZB-H1 lags B by the stage", "[pipeline]") {
  const PipelineSizes sizes{.stages = 4, .microbatches = 8};
  for (int stage = 0; stage < sizes.stages; ++stage) {
    int lag = 0;
    int most = 0;
    for (const Action& row : make_schedule(Scheduler::zb_h1, stage_input(sizes, stage))) {
      if (row.kind == ActionKind::backward_input) ++lag;
      if (row.kind == ActionKind::backward_weight) most = std::max(most, lag--);
    }
    CHECK(most == stage + 1);
    CHECK(lag == 0);
  }
}

TEST_CASE("refined pipelines reduce every bucket and stay live", "[pipeline]") {
  for (const Scheduler scheduler : {Scheduler::one_f_one_b, Scheduler::gpipe, Scheduler::zb_h1}) {
    for (int chunks : {1, 3}) {
      if (scheduler == Scheduler::zb_h1 && chunks > 1) continue;
      const PipelineSizes sizes{.stages = 3, .chunks = chunks, .microbatches = 6, .width = 4};
      SamplePipeline pipeline(scheduler, sizes);
      pipeline.replicas = 2;
      for (std::size_t stage = 0; stage < 3; ++stage) {
        std::vector<BucketSum> buckets;
        for (int chunk = chunks - 1; chunk >= 0; --chunk) {
          const int begin = pipeline.inputs[stage].units[static_cast<std::size_t>(chunk)].begin;
          for (int ready : {begin + 3, begin + 1, begin}) {
            buckets.push_back({.ready_unit = ready, .reduced = true});
          }
        }
        // Experts with one replica have nothing to reduce.
        buckets.push_back({.ready_unit = pipeline.inputs[stage].units[0].begin + 2});
        pipeline.rows[stage] = refine(pipeline.rows[stage], pipeline.inputs[stage], buckets);
        pipeline.buckets.push_back(buckets);
        const auto reduces = only(pipeline.rows[stage], ActionKind::reduce, ActionKind::reduce);
        CHECK(reduces.size() == static_cast<std::size_t>(3 * chunks));
      }
      const Simulation result = simulate(pipeline.simulation());
      INFO(first_of(result.violations));
      CHECK(result.violations.empty());
    }
  }
}

TEST_CASE("a chunk without units hands on what it gets", "[pipeline]") {
  SamplePipeline pipeline(Scheduler::one_f_one_b, {.stages = 3, .microbatches = 4, .width = 2});
  pipeline.inputs[1].units = {{2, 2}};
  pipeline.inputs[2].units = {{2, 4}};
  for (std::size_t stage = 0; stage < 3; ++stage) {
    pipeline.rows[stage] =
        refine(schedule_1f1b(pipeline.inputs[stage]), pipeline.inputs[stage], {});
  }
  const Simulation result = simulate(pipeline.simulation());
  INFO(first_of(result.violations));
  CHECK(result.violations.empty());
  CHECK(short_names(only(pipeline.rows[1], ActionKind::backward_input,
                         ActionKind::backward_weight)) == Texts{"B0.0", "B1.0", "B2.0", "B3.0"});
}

TEST_CASE("a broken schedule shows its shortest cycle", "[pipeline]") {
  SamplePipeline pipeline(Scheduler::one_f_one_b, {.stages = 4, .microbatches = 8});
  // Stage 1 wants the gradient of micro-batch 0 before it sends that micro-batch on.
  std::vector<Action>& rows = pipeline.rows[1];
  const auto at = [&](const std::string& name) {
    return std::find_if(rows.begin(), rows.end(),
                        [&](const Action& row) { return short_name(row) == name; });
  };
  std::swap(*at("receive_backward 0.0"), *at("send_forward 0.0"));
  const Simulation result = simulate(pipeline.simulation());
  const std::string text = result.violations.back();
  INFO(text);
  CHECK(text.find("deadlock: ") == 0);
  CHECK(text.find("rank 2 send_forward 0.0 + receive_forward 1.0 waits for") != std::string::npos);
  std::size_t waits = 0;
  for (std::size_t i = text.find("waits for"); i != std::string::npos;
       i = text.find("waits for", i + 1)) {
    ++waits;
  }
  CHECK(waits == 5);
}

TEST_CASE("of several cycles the shortest is found", "[pipeline]") {
  WaitGraph graph;
  for (int i = 0; i < 12; ++i) graph.add(1.0);
  for (int i = 1; i < 9; ++i) graph.wait(i, i - 1);
  graph.wait(0, 8);  // a ring of nine
  graph.wait(4, 6);  // a ring of three within it: 4, 5, 6
  graph.wait(9, 6);  // waits for a ring, and nobody for it
  graph.wait(11, 10);
  REQUIRE_FALSE(graph.play());
  std::vector<int> cycle = graph.shortest_cycle();
  REQUIRE(cycle.size() == 3);
  std::sort(cycle.begin(), cycle.end());
  CHECK(cycle == std::vector<int>{4, 5, 6});
  CHECK(graph.finish(11) == 2.0);
}
