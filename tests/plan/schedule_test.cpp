#include "plan/schedule.h"

#include "catch.h"

using namespace trainctl;

namespace {

std::vector<std::string> texts(const std::vector<Action>& rows) {
  std::vector<std::string> list;
  for (const Action& row : rows) list.push_back(to_string(row));
  return list;
}

FlatLayout buckets_ready_at(std::initializer_list<int> units) {
  FlatLayout layout;
  for (int unit : units) {
    layout.buckets.push_back(
        Bucket{.offset = 0, .length = 64, .parameters = {}, .ready_unit = unit});
  }
  return layout;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("one stage: fetch, F, B, W for each micro-batch, then step", "[schedule]") {
  const auto rows = schedule_no_pipelining({.microbatches = 2, .units = 3});
  CHECK(texts(rows) == Texts{"fetch 0.0", "F0.0[0,3)", "B0.0[0,3)", "W0.0[0,3)", "fetch 0.1",
                             "F0.1[0,3)", "B0.1[0,3)", "W0.1[0,3)", "step"});
}

TEST_CASE("refined rows interleave B and W and reduce as early as they can", "[schedule]") {
  const ScheduleInput input{.microbatches = 2, .units = 3};
  const auto rows = schedule_no_pipelining(input);
  const Texts backward0{"B0.0[2,3)", "W0.0[2,3)", "B0.0[1,2)",
                        "W0.0[1,2)", "B0.0[0,1)", "W0.0[0,1)"};
  Texts alone{"fetch 0.0", "F0.0[0,3)"};
  alone.insert(alone.end(), backward0.begin(), backward0.end());
  Texts parallel = alone;
  for (const char* text : {"fetch 0.1", "F0.1[0,3)", "B0.1[2,3)", "W0.1[2,3)", "B0.1[1,2)",
                           "W0.1[1,2)", "B0.1[0,1)", "W0.1[0,1)", "step"}) {
    alone.push_back(text);
  }
  for (const char* text : {"fetch 0.1", "F0.1[0,3)", "B0.1[2,3)", "W0.1[2,3)", "reduce 0",
                           "B0.1[1,2)", "W0.1[1,2)", "B0.1[0,1)", "W0.1[0,1)", "reduce 1",
                           "reduce 2", "wait_reduce 0", "wait_reduce 1", "wait_reduce 2", "step"}) {
    parallel.push_back(text);
  }
  const FlatLayout layout = buckets_ready_at({2, 0, 0});
  CHECK(texts(refine(rows, input, layout, 1)) == alone);
  CHECK(texts(refine(rows, input, layout, 4)) == parallel);
}

TEST_CASE("W rows apart from their B are split on their own", "[schedule]") {
  const ScheduleInput input{.microbatches = 1, .units = 2};
  const std::vector<Action> rows{{ActionKind::forward, 0, 0, 0, 2},
                                 {ActionKind::backward_input, 0, 0, 0, 2},
                                 {ActionKind::send_backward, 0, 0},
                                 {ActionKind::backward_weight, 0, 0, 0, 2},
                                 {ActionKind::step}};
  CHECK(texts(refine(rows, input, buckets_ready_at({0}), 2)) ==
        Texts{"F0.0[0,2)", "B0.0[1,2)", "B0.0[0,1)", "send_backward 0.0", "W0.0[1,2)", "W0.0[0,1)",
              "reduce 0", "wait_reduce 0", "step"});
}

TEST_CASE("peak of kept micro-batches", "[schedule]") {
  CHECK(peak_microbatches({}) == 0);
  for (int microbatches : {1, 2, 7}) {
    const auto rows = schedule_no_pipelining({.microbatches = microbatches, .units = 4});
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

TEST_CASE("every kind of row has a text", "[schedule]") {
  CHECK(to_string(Action{ActionKind::forward, 1, 2, 3, 4}) == "F1.2[3,4)");
  CHECK(to_string(Action{.kind = ActionKind::wait_reduce, .bucket = 3}) == "wait_reduce 3");
  CHECK(to_string(Action{ActionKind::send_forward, 0, 5}) == "send_forward 0.5");
  CHECK(to_string(Action{ActionKind::receive_forward, 0, 5}) == "receive_forward 0.5");
  CHECK(to_string(Action{ActionKind::receive_backward, 0, 5}) == "receive_backward 0.5");
}
