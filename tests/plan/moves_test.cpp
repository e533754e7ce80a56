// Rows that repeat: blocks of parameters that are freed after use, sums after every micro-batch,
// and the slots in which both take turns.
#include <algorithm>

#include "ranks.h"

using namespace trainctl;

namespace {

std::size_t count_of(const Texts& all, const std::string& text) {
  return static_cast<std::size_t>(std::count(all.begin(), all.end(), text));
}

/// Blocks of one unit each, all freed.
std::vector<GatherBlock> freed_units(int units) {
  std::vector<GatherBlock> blocks;
  for (int unit = 0; unit < units; ++unit) blocks.push_back({{unit, unit + 1}, -1, true});
  return blocks;
}

/// Buckets of one unit each, all summed in each micro-batch.
std::vector<BucketSum> repeated_units(int units) {
  std::vector<BucketSum> sums;
  for (int unit = units - 1; unit >= 0; --unit) {
    sums.push_back({.ready_unit = unit, .reduced = true, .repeated = true, .units = {unit}});
  }
  return sums;
}

/// Two replicas of four units that free every block and sum after every micro-batch.
struct Moving {
  ScheduleInput input = stage_input({.microbatches = 2, .width = 4}, 0);
  std::vector<GatherBlock> blocks = freed_units(4);
  std::vector<BucketSum> sums = repeated_units(4);
  Ring weights, gradients;
  std::vector<Action> rows;

  explicit Moving(int ahead) {
    rows = gather_freed(refine(schedule_no_pipelining(input), input, sums, blocks), blocks, ahead);
    weights = weight_ring(rows, blocks, {500, 100, 100, 300});
    gradients = gradient_ring(rows, sums, {30, 10, 10, 50});
    for (std::size_t i = 0; i < 4; ++i) {
      blocks[i].slot = weights.slot[i];
      sums[i].slot = gradients.slot[i];
    }
    rows = await_slots(rows, sums);
  }

  Simulation play() const {
    Ranks all;
    for (int rank = 0; rank < 2; ++rank) {
      all.ranks.push_back({input, rank, 0, {}});
      all.rows.push_back(rows);
    }
    all.buckets = {sums};
    all.gathers = {blocks};
    return all.play();
  }
};

template <class Change>
Simulation broken_moves(Change change) {
  Moving moving(1);
  change(moving.rows);
  return moving.play();
}

/// Moves one row to the place behind another.
void put_behind(std::vector<Action>& rows, const std::string& text, const std::string& other) {
  const Action row = rows[index_of(rows, text)];
  drop(rows, text);
  rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(index_of(rows, other)) + 1, row);
}

}  // namespace

TEST_CASE("a block is gathered ahead of each use and freed behind it", "[moves]") {
  Texts all = texts(Moving(1).rows);
  all.resize(15);
  CHECK(all == Texts{"gather 0", "gather 1", "fetch 0.0", "wait_gather 0", "F0.0[0,1)", "free 0",
                     "gather 2", "wait_gather 1", "F0.0[1,2)", "free 1", "gather 3",
                     "wait_gather 2", "F0.0[2,3)", "wait_gather 3", "F0.0[3,4)"});
  all = texts(Moving(1).rows);
  CHECK(count_of(all, "gather 3") == 1);  // for F and B of the first micro-batch
  CHECK(count_of(all, "gather 2.1") == 1);
  CHECK(count_of(all, "gather 3.2") == 0);
  Texts late = texts(Moving(0).rows);
  late.resize(7);
  CHECK(late == Texts{"gather 0", "fetch 0.0", "wait_gather 0", "F0.0[0,1)", "free 0", "gather 1",
                      "wait_gather 1"});
}

TEST_CASE("blocks that are held at once have different slots", "[moves]") {
  const Ring one = Moving(0).weights;
  CHECK(one.sizes == std::vector<std::int64_t>{500});
  const Ring two = Moving(1).weights;
  CHECK(two.sizes == std::vector<std::int64_t>{500, 100, 100});
  for (std::size_t i = 0; i < 3; ++i) CHECK(two.slot[i] != two.slot[i + 1]);
  CHECK(two.slot[0] == two.slot[3]);
  const Ring four = Moving(9).weights;
  CHECK(four.length == 1000);
}

TEST_CASE("a bucket is summed while the next one is made in another slot", "[moves]") {
  const Moving moving(1);
  CHECK(moving.gradients.sizes == std::vector<std::int64_t>{50, 30});
  const Texts all = texts(moving.rows);
  for (const char* bucket : {"0", "1", "2", "3"}) {
    CHECK(count_of(all, "reduce " + std::string(bucket)) == 1);
    CHECK(count_of(all, "reduce " + std::string(bucket) + ".1") == 1);
  }
  CHECK(moving.play().violations.empty());
  for (const int ahead : {0, 2, 9}) CHECK(Moving(ahead).play().violations.empty());
}

TEST_CASE("parameters that are not there are found", "[moves]") {
  using Rows = std::vector<Action>;
  CHECK(mentions(broken_moves([](Rows& r) { put_behind(r, "free 0", "wait_gather 0"); }),
                 "F0.0[0,1): reads parameters of block 0, which is freed"));
  CHECK(mentions(broken_moves([](Rows& r) {
                   put_behind(r, "gather 1", "F0.0[1,2)");
                   put_behind(r, "wait_gather 1", "gather 1");
                 }),
                 "F0.0[1,2): reads parameters before wait_gather 1"));
  CHECK(mentions(broken_moves([](Rows& r) { put_behind(r, "gather 3", "fetch 0.0"); }),
                 "gather 3: its slot holds block 0"));
  CHECK(mentions(broken_moves([](Rows& r) { drop(r, "free 0"); }), "its slot holds block 0"));
  CHECK(mentions(broken_moves([](Rows& r) { drop(r, "gather 2.1"); }), "is not being gathered"));
  Moving late(1);
  late.blocks[3].slot = late.blocks[2].slot;
  CHECK(mentions(late.play(), "its slot holds block 2"));
}

TEST_CASE("gradients that are lost are found", "[moves]") {
  using Rows = std::vector<Action>;
  CHECK(mentions(broken_moves([](Rows& r) { drop(r, "reduce 3.1"); }),
                 "the last gradients of bucket 3 are never reduced"));
  CHECK(mentions(broken_moves([](Rows& r) { drop(r, "wait_reduce 0"); }),
                 "adds to gradients where the sum of bucket 0 is under way"));
  CHECK(mentions(broken_moves([](Rows& r) { drop(r, "reduce 0"); }),
                 "adds to gradients where those of bucket 0 are"));
  CHECK(mentions(broken_moves([](Rows& r) { exchange(r, "reduce 0", "W0.0[3,4)"); }),
                 "W0.0[3,4): adds to gradients where the sum of bucket 0 is under way"));
  Moving other(1);
  other.sums[1].slot = other.sums[0].slot;
  CHECK_FALSE(other.play().violations.empty());
}
