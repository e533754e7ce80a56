#include "plan/generators/generators.h"

#include <algorithm>

#include "catch.h"
#include "pipeline.h"

using namespace trainctl;

TEST_CASE("one stage: fetch, F, B, W for each micro-batch, then step", "[schedule]") {
  const auto rows = schedule_no_pipelining(stage_input({.microbatches = 2, .width = 3}, 0));
  CHECK(texts(rows) == Texts{"fetch 0.0", "F0.0[0,3)", "B0.0[0,3)", "W0.0[0,3)", "fetch 1.0",
                             "F1.0[0,3)", "B1.0[0,3)", "W1.0[0,3)", "step"});
}

TEST_CASE("refined rows interleave B and W and reduce as early as they can", "[schedule]") {
  const ScheduleInput input = stage_input({.microbatches = 2, .width = 3}, 0);
  const auto rows = schedule_no_pipelining(input);
  const Texts backward0{"B0.0[2,3)", "W0.0[2,3)", "B0.0[1,2)",
                        "W0.0[1,2)", "B0.0[0,1)", "W0.0[0,1)"};
  Texts alone{"fetch 0.0", "F0.0[0,3)"};
  alone.insert(alone.end(), backward0.begin(), backward0.end());
  Texts parallel = alone;
  for (const char* text : {"fetch 1.0", "F1.0[0,3)", "B1.0[2,3)", "W1.0[2,3)", "B1.0[1,2)",
                           "W1.0[1,2)", "B1.0[0,1)", "W1.0[0,1)", "step"}) {
    alone.push_back(text);
  }
  for (const char* text : {"fetch 1.0", "F1.0[0,3)", "B1.0[2,3)", "W1.0[2,3)", "reduce 0",
                           "B1.0[1,2)", "W1.0[1,2)", "B1.0[0,1)", "W1.0[0,1)", "reduce 1",
                           "reduce 2", "wait_reduce 0", "wait_reduce 1", "wait_reduce 2", "step"}) {
    parallel.push_back(text);
  }
  CHECK(texts(refine(rows, input, std::vector<BucketSum>(3))) == alone);
  CHECK(texts(refine(rows, input, reduced({2, 0, 0}))) == parallel);
  Texts serial = alone;
  serial.pop_back();
  for (const char* text : {"reduce 0", "reduce 1", "reduce 2", "wait_reduce 0", "wait_reduce 1",
                           "wait_reduce 2", "step"}) {
    serial.push_back(text);
  }
  CHECK(texts(refine(rows, input, reduced({2, 0, 0}), {}, ParamSyncStart("overlap"), false)) ==
        serial);
}

TEST_CASE("W rows apart from their B are split on their own", "[schedule]") {
  const ScheduleInput input = stage_input({.width = 2}, 0);
  const std::vector<Action> rows{{ActionKind::forward, 0, 0, 0, 2},
                                 {ActionKind::backward_input, 0, 0, 0, 2},
                                 {ActionKind::send_backward, 0, 0},
                                 {ActionKind::backward_weight, 0, 0, 0, 2},
                                 {ActionKind::step}};
  CHECK(texts(refine(rows, input, reduced({0}))) ==
        Texts{"F0.0[0,2)", "B0.0[1,2)", "B0.0[0,1)", "send_backward 0.0", "W0.0[1,2)", "W0.0[0,1)",
              "reduce 0", "wait_reduce 0", "step"});
}

TEST_CASE("peak of kept micro-batches", "[schedule]") {
  CHECK(peak_microbatches(std::vector<Action>{}) == 0);
  for (int microbatches : {1, 2, 7}) {
    const auto rows =
        schedule_no_pipelining(stage_input({.microbatches = microbatches, .width = 4}, 0));
    CHECK(peak_microbatches(rows) == 1);
  }
  std::vector<Action> gpipe;  // all F, then all B and W
  for (int m = 0; m < 5; ++m) gpipe.push_back({ActionKind::forward, 0, m, 0, 1});
  for (int m = 4; m >= 0; --m) gpipe.push_back({ActionKind::backward_input, 0, m, 0, 1});
  CHECK(peak_microbatches(gpipe) == 5);
  gpipe.insert(gpipe.begin() + 5, {ActionKind::backward_weight, 0, 0, 0, 1});
  CHECK(peak_microbatches(gpipe) == 5);
  const std::vector<Action> fetched_early{{ActionKind::fetch, 0, 0},
                                          {ActionKind::fetch, 0, 1},
                                          {ActionKind::forward, 0, 0, 0, 1},
                                          {ActionKind::backward_input, 0, 0, 0, 1},
                                          {ActionKind::forward, 0, 1, 0, 1}};
  CHECK(peak_microbatches(fetched_early) == 2);
}

TEST_CASE("buckets of chunks and experts start when their own units are final", "[schedule]") {
  ScheduleInput input = stage_input({.width = 2}, 0);
  input.units = {{0, 2}, {4, 6}};
  const std::vector<Action> rows{{ActionKind::forward, 0, 0, 0, 2},
                                 {ActionKind::forward, 1, 0, 4, 6},
                                 {ActionKind::backward_input, 1, 0, 4, 6},
                                 {ActionKind::backward_weight, 1, 0, 4, 6},
                                 {ActionKind::backward_input, 0, 0, 0, 2},
                                 {ActionKind::backward_weight, 0, 0, 0, 2},
                                 {ActionKind::step}};
  std::vector<BucketSum> buckets = reduced({4, 0, 5});
  CHECK(texts(refine(rows, input, buckets)) ==
        Texts{"F0.0[0,2)", "F0.1[4,6)", "B0.1[5,6)", "W0.1[5,6)", "reduce 2", "B0.1[4,5)",
              "W0.1[4,5)", "reduce 0", "B0.0[1,2)", "W0.0[1,2)", "B0.0[0,1)", "W0.0[0,1)",
              "reduce 1", "wait_reduce 0", "wait_reduce 1", "wait_reduce 2", "step"});
  buckets[0].reduced = buckets[1].reduced = false;
  CHECK(texts(refine(rows, input, buckets)) ==
        Texts{"F0.0[0,2)", "F0.1[4,6)", "B0.1[5,6)", "W0.1[5,6)", "reduce 2", "B0.1[4,5)",
              "W0.1[4,5)", "B0.0[1,2)", "W0.0[1,2)", "B0.0[0,1)", "W0.0[0,1)", "wait_reduce 2",
              "step"});
}

TEST_CASE("what decides whether a bucket is summed", "[schedule]") {
  std::vector<ParamSpec> parameters(4);
  FlatBuffer layout;
  for (int index = 0; index < 4; ++index) {
    layout.buckets.push_back(Bucket{.length = 64, .parameters = {index}, .ready_unit = 3 - index});
  }
  const auto shown = [&] {
    std::string text;
    for (const BucketSum& sum : bucket_sums(layout, parameters)) {
      text += std::to_string(sum.ready_unit) + (sum.reduced ? "r" : "") +
              (sum.embedding ? "e" : "") + (sum.has_rows() ? " " : "- ");
    }
    return text;
  };
  CHECK(shown() == "3- 2- 1- 0- ");
  parameters[0].gradient_sum[static_cast<std::size_t>(Axis::edp)] = true;
  parameters[1].gradient_sum[static_cast<std::size_t>(Axis::tp)] = true;
  parameters[2].tp_copies = 2;
  parameters[3].two_homes = true;
  CHECK(shown() == "3r 2r 1r 0e ");
  layout.buckets[0].parameters = {2, 1};
  parameters[2].tp_copies = 1;
  CHECK(shown() == "3r 2r 1- 0e ");
}

TEST_CASE("parameters are gathered first, and waited for where they are read", "[schedule]") {
  const ScheduleInput input = stage_input({.microbatches = 2, .width = 4}, 0);
  const auto rows = schedule_no_pipelining(input);
  const std::vector<GatherBlock> gathers{{{0, 2}}, {{2, 4}}, {{3, 4}}};
  const auto head = [&](ParamSyncStart when) {
    Texts all = texts(refine(rows, input, {}, gathers, when));
    all.resize(10);
    return all;
  };
  CHECK(head(ParamSyncStart("overlap")) == Texts{"gather 0", "gather 1", "gather 2", "fetch 0.0",
                                                 "wait_gather 0", "F0.0[0,2)", "wait_gather 1",
                                                 "F0.0[2,3)", "wait_gather 2", "F0.0[3,4)"});
  CHECK(head(ParamSyncStart("before_forward")) ==
        Texts{"gather 0", "gather 1", "gather 2", "wait_gather 0", "wait_gather 1", "wait_gather 2",
              "fetch 0.0", "F0.0[0,4)", "B0.0[3,4)", "W0.0[3,4)"});
  const Texts all = texts(refine(rows, input, {}, gathers));
  CHECK(std::count(all.begin(), all.end(), "F1.0[0,4)") == 1);  // by then they are there
}

TEST_CASE("a tied embedding is summed over its stages once all reduces have begun", "[schedule]") {
  const ScheduleInput input = stage_input({.width = 2}, 0);
  const std::vector<Action> rows{{ActionKind::forward, 0, 0, 0, 2},
                                 {ActionKind::backward_input, 0, 0, 0, 2},
                                 {ActionKind::backward_weight, 0, 0, 0, 2},
                                 {ActionKind::step}};
  std::vector<BucketSum> buckets = reduced({0, 1});
  buckets[0].embedding = true;
  const Texts work{"F0.0[0,2)", "B0.0[1,2)", "W0.0[1,2)", "reduce 1", "B0.0[0,1)", "W0.0[0,1)"};
  Texts both = work;
  for (const char* text :
       {"reduce 0", "reduce_embedding 0", "wait_reduce 0", "wait_reduce 1", "step"}) {
    both.emplace_back(text);
  }
  CHECK(texts(refine(rows, input, {buckets[1], buckets[0]}))[6] == "reduce 1");
  CHECK(texts(refine(rows, input, buckets)) == both);
  buckets[0].reduced = false;  // one replica: only the two stages add
  Texts stages = work;
  for (const char* text : {"reduce_embedding 0", "wait_reduce 0", "wait_reduce 1", "step"}) {
    stages.emplace_back(text);
  }
  CHECK(texts(refine(rows, input, buckets)) == stages);
}

TEST_CASE("a received input takes its slot", "[schedule]") {
  const std::vector<Action> early{
      {ActionKind::receive_forward, 0, 0}, {ActionKind::receive_forward, 0, 1},
      {ActionKind::forward, 0, 0, 0, 1},   {ActionKind::backward_input, 0, 0, 0, 1},
      {ActionKind::forward, 0, 1, 0, 1},   {ActionKind::backward_input, 0, 1, 0, 1}};
  CHECK(peak_microbatches(early) == 2);
}

TEST_CASE("every kind of row has a text", "[schedule]") {
  CHECK(to_string(Action{ActionKind::forward, 1, 2, 3, 4}) == "F2.1[3,4)");
  CHECK(short_name(Action{ActionKind::forward, 1, 2, 3, 4}) == "F2.1");
  CHECK(to_string(Action{.kind = ActionKind::wait_reduce, .bucket = 3}) == "wait_reduce 3");
  CHECK(to_string(Action{.kind = ActionKind::free, .bucket = 3, .visit = 2}) == "free 3.2");
  CHECK(to_string(Action{.kind = ActionKind::reduce_embedding, .bucket = 2}) ==
        "reduce_embedding 2");
  CHECK(to_string(Action{ActionKind::send_forward, 0, 5}) == "send_forward 5.0");
  CHECK(to_string(Action{ActionKind::receive_forward, 0, 5}) == "receive_forward 5.0");
  CHECK(to_string(Action{ActionKind::receive_backward, 0, 5}) == "receive_backward 5.0");
}
