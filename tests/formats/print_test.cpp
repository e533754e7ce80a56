// The plan as a table, at eight ranks and at sixteen thousand.
#include <sstream>

#include "base/error.h"
#include "catch.h"
#include "contains.h"
#include "formats/print/print.h"
#include "formats/print/text.h"
#include "formats/print/timeline.h"
#include "plan/sample.h"

using namespace trainctl;
namespace {

Config staged(std::int64_t tp, std::int64_t pp, std::int64_t chunks, std::int64_t batch) {
  Config config = small_config();
  config.parallel.tensor_parallel = tp;
  config.parallel.pipeline_stages = pp;
  config.parallel.virtual_pipeline_stages = chunks;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = batch;
  return config;
}

void check_shape(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 140);
    CHECK_FALSE(line.ends_with(" "));
  }
}

}  // namespace

TEST_CASE("the table shows every section", "[print]") {
  const Config config = staged(2, 2, 1, 8);
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  const std::string text = print_table({.plan = plan, .config = &config, .lr_at = {3}});
  INFO(text);
  for (const char* title :
       {"mesh\n", "groups\n", "stages", "schedule", "parameters", "memory per rank",
        "communication", "work per step\n", "learning rate", "asked for\n  step 3", "plan hash"}) {
    CHECK(contains(text, title));
  }
  CHECK(contains(text, "8 ranks = tp 2 x cp 1 x dp 2 x pp 2\n"));
  CHECK(contains(text, "8 sequences = micro 1 x 4 micro-batches x dp 2"));
  CHECK(contains(text, "tp                  4 groups of 2 ranks, the first 0,1\n"));
  CHECK(contains(text, "pp                  4 groups of 2 ranks, the first 0,4\n"));
  CHECK(contains(text, "tp-pp               2 groups of 4 ranks, the first 0-1,4-5\n"));
  CHECK(contains(text, "0-3    embedding, layers 0..1"));
  CHECK(contains(text, "4-7    layers 2..3, head"));
  CHECK(contains(text, "schedule  1f1b, 4 micro-batches, bubble "));
  CHECK(contains(text, "layers.0..3.attention.q.weight"));
  CHECK_FALSE(contains(text, "layers.1."));
  CHECK(contains(text, "megatron-0.15"));
  CHECK(contains(text, "korthikanti"));
  check_shape(text);
}

TEST_CASE("a small schedule is drawn", "[print]") {
  const Plan plan = plan_of(staged(1, 2, 1, 3), 2);
  REQUIRE(plan.stages.size() == 2);
  const std::string text = print_table({.plan = plan});
  INFO(text);
  // Two layers on each stage: F takes 2, B and W 4.
  CHECK(contains(text, "stage 0       |F0 F1 ......B0--- F2 B1--- ...B2--- |"));
  CHECK(contains(text, "stage 1       |...F0 B0--- F1 B1--- F2 B2--- ......|"));
}

TEST_CASE("a schedule too wide for labels is drawn narrowly, one too long is folded", "[print]") {
  const std::string narrow = print_table({.plan = plan_of(staged(1, 4, 1, 24), 4)});
  INFO(narrow);
  CHECK(contains(narrow, "stage 0       |0123......aa4"));
  CHECK(contains(narrow, "stage 3       |...0aa1bb2cc"));
  const std::string folded = print_table({.plan = plan_of(staged(1, 2, 1, 200), 2)});
  INFO(folded);
  CHECK_FALSE(contains(folded, "stage 0       200 x (F B)"));
  CHECK(contains(folded, "stage 0       F, 199 x (F B), B"));
  CHECK(contains(folded, "stage 1       200 x (F B)"));
}

TEST_CASE("the table of one rank shows its place and its rows", "[print]") {
  const Config config = staged(2, 2, 1, 8);
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  const std::string text = print_table({.plan = plan, .config = &config, .rank = 6});
  INFO(text);
  CHECK(contains(text, "rank 6              tp 0, cp 0, dp 1, pp 1\n"));
  CHECK(contains(text, "dp                  ranks 4,6\n"));
  CHECK(contains(text, "memory per rank  (stage 1)"));
  CHECK(contains(text, "    fetch 0.0\n"));
  CHECK_FALSE(contains(text, "embedding.position"));
  check_shape(text);
  CHECK_THROWS_AS(print_table({.plan = plan, .rank = 8}), Error);
}

TEST_CASE("one rank alone", "[print]") {
  const std::string text = print_table({.plan = plan_of(small_config())});
  INFO(text);
  CHECK(contains(text, "1 rank = tp 1 x cp 1 x dp 1 x pp 1\n"));
  CHECK(contains(text, "of one rank         tp, cp, dp,"));
  CHECK(contains(text, "communication  (one rank, one step)\n  none\n"));
}

TEST_CASE("the step's time stands where the config has the rates of a rank", "[print]") {
  Config config = small_config();
  CHECK(contains(print_table({.plan = plan_of(config)}), "time per step  not estimated"));
  config.cluster = {1e12, 1e11, 1e-6, 1e10};
  Plan plan = plan_of(config);
  REQUIRE(plan.time);
  plan.time = TimeEstimate{.forward_backward = 1.5, .exposed = 0.25, .optimizer = 0.5};
  CHECK(contains(print_table({.plan = plan}),
                 "  forward, backward 1.5 s, of which 250.0 ms exposed communication, bubble 0.0%\n"
                 "  optimizer     500.0 ms\n"
                 "  total         2.0 s, "));
  plan.overlap.any = true;
  plan.time->hidden = 0.125;
  CHECK(contains(print_table({.plan = plan}),
                 "bubble 0.0%\n  overlapped    125.0 ms of the collectives in layers\n"));
}

TEST_CASE("a large world stays readable", "[print]") {
  Config config = staged(4, 4, 1, 4096);
  config.parallel.sequence_parallel = true;
  const Plan plan = plan_of(config, 16384);
  REQUIRE(plan.stages.size() == 4);
  const std::string text = print_table({.plan = plan, .config = &config});
  INFO(text);
  CHECK(contains(text, "4,096 groups of 4 ranks, the first 0-3\n"));
  CHECK(contains(text, "16 groups of 1,024 ranks, the first 0,4,8,..,4092\n"));
  CHECK(text.size() < 20'000);
  check_shape(text);
}

TEST_CASE("ranks are folded", "[print]") {
  CHECK(fold_ranks({}) == "");
  CHECK(fold_ranks({7}) == "7");
  CHECK(fold_ranks({0, 1}) == "0,1");
  CHECK(fold_ranks({0, 1, 2, 3}) == "0-3");
  CHECK(fold_ranks({0, 8, 16, 24}) == "0,8,16,24");
  CHECK(fold_ranks({0, 8, 16, 24, 32, 40, 48, 56}) == "0,8,16,..,56");
  CHECK(fold_ranks({0, 1, 4, 5}) == "0-1,4-5");
}

TEST_CASE("the timeline agrees with the plan's bubble", "[print]") {
  for (const PipelineScheduler scheduler :
       {PipelineScheduler::one_f_one_b, PipelineScheduler::gpipe, PipelineScheduler::zb_h1}) {
    Config config = staged(1, 4, 1, 8);
    config.parallel.pipeline.scheduler = scheduler;
    config.model.tie_word_embeddings = false;  // no sum between stages at the end
    const Plan plan = plan_of(config, 4);
    REQUIRE(plan.stages.size() == 4);
    const Timeline timeline = make_timeline(plan);
    double idle = 0;
    for (const double share : timeline.idle_fraction) idle += share / 4;
    CHECK(idle == Approx(plan.bubble_fraction));
    const bool apart = scheduler == PipelineScheduler::zb_h1;
    CHECK(splits_backward(plan.stages[3]) == apart);
    int forwards = 0;
    for (const TimeBlock& block : timeline.blocks) forwards += block.kind == BlockKind::forward;
    CHECK(forwards == 4 * 8);
  }
}
