#include "catch.h"
#include "ranks.h"

using namespace trainctl;

TEST_CASE("ranks that share layers hang when one swaps two micro-batches", "[simulate]") {
  // One stage, two tensor-parallel ranks, GPipe's order.
  std::vector<Action> rows = gpipe(0, 1, 2);
  rows.insert(rows.begin(), rows[2]);  // both micro-batches' data first
  rows.erase(rows.begin() + 3);
  Ranks input = pipeline({rows, rows}, 2);
  input.ranks[0].input.stages = 1;
  input.ranks[1] = input.ranks[0];
  input.ranks[1].inner = 1;
  input.buckets = {};
  input.cost = unit_cost;
  const Simulation same = input.play();
  INFO(first_of(same.violations));
  CHECK(same.violations.empty());
  CHECK(same.seconds == Approx(6));

  exchange(input.rows[1], "F0.0[0,1)", "F1.0[0,1)");
  const Simulation result = input.play();
  REQUIRE(result.violations.size() == 1);
  const std::string& text = result.violations[0];
  INFO(text);
  CHECK(text.find("deadlock: ") == 0);
  CHECK(text.find("F0.0[0,1) waits for ") != std::string::npos);
  CHECK(text.find("F1.0[0,1) waits for ") != std::string::npos);
  // Different replicas have nothing to do with each other inside layers.
  input.ranks[1].inner = 0;
  input.ranks[1].replica = 1;
  CHECK(input.play().violations.empty());
}

TEST_CASE("a row that one of those who share its layers leaves out is named", "[simulate]") {
  Ranks input = data_parallel(2, 1, 3, {0});
  for (int rank : {0, 1}) {
    input.ranks[static_cast<std::size_t>(rank)].replica = 0;
    input.ranks[static_cast<std::size_t>(rank)].inner = rank;
  }
  CHECK(input.play().violations.empty());
  drop(input.rows[1], "B0.0[1,2)");
  CHECK(mentions(input.play(), "rank 0 B0.0[1,2) is not run by all that share its layers"));
}

TEST_CASE("a tied embedding is summed between the first and the last stage", "[simulate]") {
  const auto stages = [](bool reduced) {
    Ranks input = pipeline({gpipe(0, 3, 2), gpipe(1, 3, 2), gpipe(2, 3, 2)}, 2);
    const BucketSum shared{.ready_unit = 0, .reduced = reduced, .embedding = true};
    input.buckets = {{shared}, {}, {shared}};
    for (std::size_t stage : {0, 1, 2}) {
      input.rows[stage] = refine(input.rows[stage], input.ranks[stage].input, input.buckets[stage]);
    }
    input.cost = [](const RankRows& rank, const Action& action) {
      return action.kind == Kind::reduce_embedding ? 5.0
             : action.kind == Kind::reduce         ? 2.0
                                                   : unit_cost(rank, action);
    };
    return input;
  };
  Ranks alone = stages(false);
  Simulation result = alone.play();
  INFO(first_of(result.violations));
  CHECK(result.violations.empty());
  CHECK(result.seconds == Approx(3 * (2 + 2) + 5));  // GPipe's time, then the sum
  Ranks both = stages(true);
  CHECK(both.play().violations.empty());
  CHECK(both.play().seconds == Approx(12 + 2 + 5));  // the stage's own sum first

  Ranks absent = both;
  drop(absent.rows[2], "reduce_embedding 0");
  CHECK(mentions(absent.play(), "reduce_embedding 0 is not joined by the last stage"));
  CHECK(mentions(absent.play(), "not being summed over the embedding group"));
  CHECK(mentions(absent.play(), "bucket 0 is never summed over the embedding group"));
  Ranks early = both;
  exchange(early.rows[0], "reduce 0", "reduce_embedding 0");
  CHECK(mentions(early.play(), "is not being reduced on its stage"));
  Ranks soon = alone;
  exchange(soon.rows[0], "W1.0[0,1)", "reduce_embedding 0");
  CHECK(mentions(soon.play(), "gradients of unit 0 are not final"));
  Ranks twice = both;
  twice.rows[0].insert(twice.rows[0].end() - 2,
                       Action{.kind = Kind::reduce_embedding, .bucket = 0});
  CHECK(mentions(twice.play(), "has been reduced before"));
  Ranks middle = both;
  middle.rows[1].insert(middle.rows[1].end() - 1,
                        Action{.kind = Kind::reduce_embedding, .bucket = 0});
  CHECK(mentions(middle.play(), "out of range"));
  // The last stage wants the sum before it lets the first have its last gradient.
  Ranks hung = alone;
  exchange(hung.rows[2], "send_backward 1.0", "reduce_embedding 0");
  CHECK(hung.play().violations.empty());  // begun, but not waited for
  exchange(hung.rows[2], "send_backward 1.0", "wait_reduce 0");
  CHECK(mentions(hung.play(), "deadlock: "));
}

TEST_CASE("an output is not overwritten before it is sent", "[simulate]") {
  // The second stage takes micro-batch 0 only at 10: the first one's F1 must wait for it.
  const auto rows = gpipe(0, 2, 2);
  Ranks input = pipeline({rows, gpipe(1, 2, 2)}, 2);
  input.cost = [](const RankRows& rank, const Action& action) {
    const bool late = rank.input.stage == 1 && action.kind == Kind::fetch && action.microbatch == 0;
    return late ? 10.0 : unit_cost(rank, action);
  };
  const Simulation result = input.play(true);
  REQUIRE(result.violations.empty());
  const auto start_of = [&](const std::string& text) {
    for (const RowTime& time : result.times) {
      if (time.rank != 0) continue;
      if (to_string(rows[static_cast<std::size_t>(time.row)]) == text) return time.start;
    }
    return -1.0;
  };
  CHECK(start_of("F0.0[0,1)") == Approx(0));
  CHECK(start_of("F1.0[0,1)") == Approx(10));
}
