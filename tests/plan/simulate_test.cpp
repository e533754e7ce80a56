#include "plan/schedule/simulate.h"

#include <algorithm>
#include <functional>

#include "catch.h"
#include "ranks.h"

using namespace trainctl;

namespace {

/// The violations of two data-parallel ranks after `change` was done to the rows of both.
template <class Change>
Simulation broken(Change change) {
  Ranks input = data_parallel(2, 2, 3, {1, 0});
  for (std::vector<Action>& rows : input.rows) change(rows);
  return input.play();
}

}  // namespace

TEST_CASE("generated schedules are legal for many sizes", "[simulate]") {
  for (int ranks : {1, 2, 5}) {
    for (int microbatches : {1, 2, 7}) {
      for (int units : {3, 6, 14}) {
        for (const std::vector<int>& ready :
             {std::vector<int>{0}, std::vector<int>{2, 0}, std::vector<int>{2, 2, 1, 0, 0}}) {
          const Simulation result = data_parallel(ranks, microbatches, units, ready).play();
          INFO((result.violations.empty() ? "" : result.violations.front()));
          CHECK(result.violations.empty());
          CHECK(result.peak_microbatches == 1);
        }
      }
    }
  }
}

TEST_CASE("time and exposed communication of one backward", "[simulate]") {
  // F takes 3, each B and W 1; bucket 0 is ready after 4 of the 6 backward rows, bucket 1 after 6.
  Ranks input = data_parallel(2, 1, 3, {1, 0});
  double reduce = 1;
  input.cost = [&](const RankRows& rank, const Action& action) {
    return action.kind == Kind::reduce ? reduce : unit_cost(rank, action);
  };
  Simulation result = input.play();
  CHECK(result.violations.empty());
  CHECK(result.seconds == Approx(3 + 6 + 1));
  CHECK(result.exposed_communication == Approx(1));
  CHECK(result.bubble_fraction == Approx(0).margin(1e-12));
  reduce = 5;  // the second waits in the queue behind the first: 7..12, 12..17
  result = input.play();
  CHECK(result.seconds == Approx(17));
  CHECK(result.exposed_communication == Approx(8));
}

TEST_CASE("a collective starts when the slowest member has come", "[simulate]") {
  Ranks input = data_parallel(2, 1, 3, {0});
  input.cost = [](const RankRows& rank, const Action& action) {
    if (action.kind == Kind::reduce) return 2.0;
    return unit_cost(rank, action) * (rank.replica == 1 ? 2 : 1);
  };
  const Simulation result = input.play();
  CHECK(result.seconds == Approx(18 + 2));
  CHECK(result.exposed_communication == Approx(11));  // the fast rank waits from 9 to 20
}

TEST_CASE("times of the compute queue's rows", "[simulate]") {
  Ranks input = data_parallel(2, 1, 2, {0});
  input.cost = [&](const RankRows& rank, const Action& action) {
    return action.kind == Kind::reduce ? 5.0 : unit_cost(rank, action);
  };
  CHECK(input.play().times.empty());
  const Simulation result = input.play(true);
  std::vector<std::string> shown;
  for (const RowTime& time : result.times) {
    if (time.rank == 0) continue;
    const auto& row = input.rows[1][static_cast<std::size_t>(time.row)];
    shown.push_back(short_name(row) + " " + std::to_string(static_cast<int>(time.start)) + "-" +
                    std::to_string(static_cast<int>(time.finish)));
  }
  CHECK(shown == std::vector<std::string>{"fetch 0.0 0-0", "F0.0 0-2", "B0.0 2-3", "W0.0 3-4",
                                          "B0.0 4-5", "W0.0 5-6", "wait_reduce 0 11-11",
                                          "step 11-11"});
}

TEST_CASE("rows out of order are found", "[simulate]") {
  using Rows = std::vector<Action>;
  CHECK(mentions(broken([](Rows& r) { exchange(r, "F0.0[0,3)", "B0.0[2,3)"); }), "B before F"));
  CHECK(mentions(broken([](Rows& r) { exchange(r, "B0.0[1,2)", "W0.0[1,2)"); }),
                 "W before B of unit 1"));
  CHECK(mentions(broken([](Rows& r) { exchange(r, "B1.0[2,3)", "B1.0[0,1)"); }), "B must go on"));
  CHECK(mentions(broken([](Rows& r) { exchange(r, "fetch 1.0", "F1.0[0,3)"); }), "not fetched"));
  CHECK(mentions(broken([](Rows& r) { exchange(r, "reduce 0", "B1.0[1,2)"); }),
                 "gradients of unit 1 are not final"));
  CHECK(mentions(broken([](Rows& r) { exchange(r, "step", "wait_reduce 1"); }), "after the step"));
  CHECK(mentions(broken([](Rows& r) { exchange(r, "step", "W1.0[0,1)"); }), "have not run"));
}

TEST_CASE("missing and repeated rows are found", "[simulate]") {
  using Rows = std::vector<Action>;
  CHECK(mentions(broken([](Rows& r) { drop(r, "step"); }), "has no step"));
  CHECK(mentions(broken([](Rows& r) { drop(r, "wait_reduce 1"); }), "nobody waited for reduce 1"));
  CHECK(mentions(broken([](Rows& r) { drop(r, "reduce 1"); }), "bucket 1 is never reduced"));
  CHECK(mentions(broken([](Rows& r) { drop(r, "W0.0[1,2)"); }), "0.0 have not run"));
  CHECK(mentions(broken([](Rows& r) { r.insert(r.begin() + 9, r[index_of(r, "W0.0[2,3)")]); }),
                 "has run before"));
  CHECK(mentions(broken([](Rows& r) { r.insert(r.end() - 1, r[index_of(r, "reduce 0")]); }),
                 "has been reduced before"));
  CHECK(mentions(
      broken([](Rows& r) { r.insert(r.begin(), Action{.kind = Kind::reduce, .bucket = 7}); }),
      "out of range"));
  CHECK(mentions(broken([](Rows& r) { r[index_of(r, "F1.0[0,3)")].end = 9; }), "out of range"));
}

TEST_CASE("ranks that reduce in different orders hang, and the cycle is named", "[simulate]") {
  Ranks input = data_parallel(2, 1, 3, {0, 0});
  exchange(input.rows[1], "reduce 0", "reduce 1");
  const Simulation result = input.play();
  REQUIRE(result.violations.size() == 1);
  const std::string& text = result.violations[0];
  CHECK(text.find("deadlock: ") == 0);
  CHECK(text.find("reduce 0 waits for ") != std::string::npos);
  CHECK(text.find("reduce 1 waits for ") != std::string::npos);
}

TEST_CASE("a rank that never joins is named", "[simulate]") {
  Ranks input = data_parallel(3, 1, 3, {0, 0});
  drop(input.rows[2], "reduce 1");
  CHECK(mentions(input.play(), "rank 2 never joins reduce 1"));
}

TEST_CASE("GPipe's bubble is (p-1)/(m+p-1)", "[simulate]") {
  for (int stages : {2, 3, 4}) {
    for (int microbatches : {1, 4, 9}) {
      std::vector<std::vector<Action>> rows;
      for (int stage = 0; stage < stages; ++stage) {
        rows.push_back(gpipe(stage, stages, microbatches));
      }
      Ranks input = pipeline(rows, microbatches);
      input.cost = unit_cost;
      const Simulation result = input.play();
      INFO((result.violations.empty() ? "" : result.violations.front()));
      CHECK(result.violations.empty());
      CHECK(result.peak_microbatches == microbatches);
      CHECK(result.seconds == Approx(3 * (microbatches + stages - 1)));
      CHECK(result.bubble_fraction ==
            Approx((stages - 1.0) / (microbatches + stages - 1.0)).epsilon(1e-9));
    }
  }
}

TEST_CASE("messages that cross must be one batch", "[simulate]") {
  // Steady state of 1F1B: stage 0 sends m1 forward and receives m0's gradient, stage 1 the reverse.
  const std::vector<Action> first{unit_row(Kind::fetch, 0),
                                  unit_row(Kind::forward, 0),
                                  unit_row(Kind::send_forward, 0),
                                  unit_row(Kind::fetch, 1),
                                  unit_row(Kind::forward, 1),
                                  unit_row(Kind::send_forward, 1),
                                  unit_row(Kind::receive_backward, 0),
                                  unit_row(Kind::backward_input, 0),
                                  unit_row(Kind::backward_weight, 0),
                                  unit_row(Kind::receive_backward, 1),
                                  unit_row(Kind::backward_input, 1),
                                  unit_row(Kind::backward_weight, 1),
                                  Action{.kind = Kind::step}};
  std::vector<Action> second{unit_row(Kind::fetch, 0),           unit_row(Kind::fetch, 1),
                             unit_row(Kind::receive_forward, 0), unit_row(Kind::forward, 0),
                             unit_row(Kind::backward_input, 0),  unit_row(Kind::send_backward, 0),
                             unit_row(Kind::receive_forward, 1), unit_row(Kind::backward_weight, 0),
                             unit_row(Kind::forward, 1),         unit_row(Kind::backward_input, 1),
                             unit_row(Kind::send_backward, 1),   unit_row(Kind::backward_weight, 1),
                             Action{.kind = Kind::step}};
  const Simulation batched = pipeline({first, second}, 2).play();
  INFO((batched.violations.empty() ? "" : batched.violations.front()));
  CHECK(batched.violations.empty());
  CHECK(batched.peak_microbatches == 2);

  // With work between them the two are apart: each side's send waits for a receive behind it.
  std::vector<Action> apart = first;
  std::swap(apart[3], apart[5]);  // send m1 ... now before its F: illegal and found as such
  CHECK(mentions(pipeline({apart, second}, 2).play(), "is sent before F has made it"));
  std::swap(second[6], second[7]);  // send_backward 0, W, receive_forward 1
  std::vector<Action> split = first;
  split.insert(split.begin() + 6, unit_row(Kind::fetch, 1));
  CHECK(mentions(pipeline({split, second}, 2).play(), "deadlock: "));
}

TEST_CASE("messages without a partner, and data used before it comes, are found", "[simulate]") {
  auto first = gpipe(0, 2, 2);
  auto second = gpipe(1, 2, 2);
  auto no_receive = second;
  drop(no_receive, "receive_forward 1.0");
  CHECK(mentions(pipeline({first, no_receive}, 2).play(), "send_forward 1.0 is never received"));
  CHECK(mentions(pipeline({first, no_receive}, 2).play(), "its input is not received"));
  auto no_send = first;
  drop(no_send, "send_forward 0.0");
  CHECK(mentions(pipeline({no_send, second}, 2).play(), "receive_forward 0.0 is never sent"));
  auto early = first;
  drop(early, "receive_backward 0.0");
  CHECK(mentions(pipeline({early, second}, 2).play(), "its gradient is not received"));
  auto twice = second;
  twice.insert(twice.begin(), unit_row(Kind::receive_forward, 0));
  CHECK(mentions(pipeline({first, twice}, 2).play(), "has happened before"));
  CHECK(mentions(pipeline({second, first}, 2).play(), "no other stage has the chunk before it"));
}

TEST_CASE("two stages that wait for each other's first message hang", "[simulate]") {
  auto first = gpipe(0, 2, 1);
  auto second = gpipe(1, 2, 1);
  // The first stage wants the gradient before it has sent what the gradient is of.
  exchange(first, "send_forward 0.0", "F0.0[0,1)");
  exchange(first, "send_forward 0.0", "receive_backward 0.0");
  const Simulation result = pipeline({first, second}, 1).play();
  CHECK(mentions(result, "deadlock: "));
  CHECK(mentions(result, "receive_backward 0.0"));
}

TEST_CASE("interleaved chunks wrap from the last stage to the first", "[simulate]") {
  // Two stages, two chunks: virtual stages 0.0, 1.0, 0.1, 1.1 in this order.
  const auto row = [](Kind kind, int chunk) { return Action{kind, chunk, 0, chunk, chunk + 1}; };
  const std::vector<Action> first{
      row(Kind::fetch, 0),          row(Kind::forward, 0),          row(Kind::send_forward, 0),
      row(Kind::fetch, 1),          row(Kind::receive_forward, 1),  row(Kind::forward, 1),
      row(Kind::send_forward, 1),   row(Kind::receive_backward, 1), row(Kind::backward_input, 1),
      row(Kind::send_backward, 1),  row(Kind::backward_weight, 1),  row(Kind::receive_backward, 0),
      row(Kind::backward_input, 0), row(Kind::backward_weight, 0),  Action{.kind = Kind::step}};
  const std::vector<Action> second{row(Kind::fetch, 0),
                                   row(Kind::fetch, 1),
                                   row(Kind::receive_forward, 0),
                                   row(Kind::forward, 0),
                                   row(Kind::send_forward, 0),
                                   row(Kind::receive_forward, 1),
                                   row(Kind::forward, 1),
                                   row(Kind::backward_input, 1),
                                   row(Kind::send_backward, 1),
                                   row(Kind::backward_weight, 1),
                                   row(Kind::receive_backward, 0),
                                   row(Kind::backward_input, 0),
                                   row(Kind::send_backward, 0),
                                   row(Kind::backward_weight, 0),
                                   Action{.kind = Kind::step}};
  Ranks input = pipeline({first, second}, 1);
  for (RankRows& rank : input.ranks) rank.input.units = {{0, 1}, {1, 2}};
  const Simulation result = input.play();
  INFO((result.violations.empty() ? "" : result.violations.front()));
  CHECK(result.violations.empty());
  CHECK(result.peak_microbatches == 2);
}

namespace {

/// Two replicas that gather the parameters of unit 0, then those of units 1 and 2.
Ranks gathering() {
  const ScheduleInput input = stage_input({.microbatches = 2, .width = 3}, 0);
  const std::vector<BucketSum> buckets = reduced({1, 0});
  const std::vector<GatherBlock> gathers{{{0, 1}}, {{1, 3}}};
  Ranks all;
  for (int rank = 0; rank < 2; ++rank) {
    all.ranks.push_back({input, rank, 0, {}});
    all.rows.push_back(refine(schedule_no_pipelining(input), input, buckets, gathers));
  }
  all.buckets = {buckets};
  all.gathers = {gathers};
  return all;
}

template <class Change>
Simulation broken_gather(Change change) {
  Ranks input = gathering();
  for (std::vector<Action>& rows : input.rows) change(rows);
  return input.play();
}

}  // namespace

TEST_CASE("parameters are gathered and waited for before they are read", "[simulate]") {
  using Rows = std::vector<Action>;
  CHECK(gathering().play().violations.empty());
  CHECK(mentions(broken_gather([](Rows& r) {
                   drop(r, "gather 0");
                   drop(r, "wait_gather 0");
                 }),
                 "gather 0 is missing"));
  CHECK(mentions(broken_gather([](Rows& r) { drop(r, "gather 1"); }), "is not being gathered"));
  CHECK(mentions(broken_gather([](Rows& r) { drop(r, "wait_gather 0"); }),
                 "nobody waited for gather 0"));
  CHECK(mentions(broken_gather([](Rows& r) { drop(r, "wait_gather 1"); }),
                 "F0.0[1,3): reads parameters before wait_gather 1"));
  CHECK(mentions(broken_gather([](Rows& r) { exchange(r, "wait_gather 1", "F0.0[1,3)"); }),
                 "F0.0[1,3): reads parameters before wait_gather 1"));
  CHECK(mentions(broken_gather([](Rows& r) { r.insert(r.begin(), r[index_of(r, "gather 0")]); }),
                 "has been gathered before"));
  Ranks other = gathering();
  other.gathers[0].pop_back();
  CHECK(mentions(other.play(), "gather 1: is out of range"));
}

TEST_CASE("gathers are a rendezvous on the queue of the reductions", "[simulate]") {
  Ranks input = gathering();
  exchange(input.rows[1], "gather 0", "gather 1");
  CHECK(mentions(input.play(), "deadlock"));
  input = gathering();
  drop(input.rows[1], "gather 0");
  CHECK(mentions(input.play(), "rank 1 never joins gather 0"));
  input = gathering();
  // Each gather takes 2, F of a unit 1: bucket 1 comes at 2, bucket 0 at 4, F of unit 0 ends at 3.
  input.cost = [](const RankRows& rank, const Action& action) {
    return action.kind == Kind::gather ? 2.0 : unit_cost(rank, action);
  };
  CHECK(input.play().exposed_communication == Approx(2 + 1));
  CHECK(input.play().seconds == Approx(4 + 2 + 6 + 3 + 6));
}
