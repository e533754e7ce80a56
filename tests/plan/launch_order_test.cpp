// Threads run collectives of different queues side by side; a device does not promise that.
#include "catch.h"
#include "ranks.h"

using namespace trainctl;

namespace {

Simulation on_devices(const Ranks& all, bool hosts_meet = false) {
  SimulationInput input{
      .ranks = all.ranks, .buckets = all.buckets, .cost = all.cost, .gathers = all.gathers};
  for (std::size_t i = 0; i < all.rows.size(); ++i) input.ranks[i].rows = all.rows[i];
  input.on_devices = true;
  input.hosts_meet = hosts_meet;
  return simulate(input);
}

/// Two ranks that share layers and sum the gradients of each unit.
Ranks tensor_parallel() {
  Ranks all = data_parallel(2, 1, 2, {1, 0});
  for (int rank : {0, 1}) {
    all.ranks[static_cast<std::size_t>(rank)].replica = 0;
    all.ranks[static_cast<std::size_t>(rank)].inner = rank;
  }
  all.cost = unit_cost;
  return all;
}

}  // namespace

TEST_CASE("collectives of two queues in another order hang on devices only", "[simulate]") {
  Ranks same = tensor_parallel();
  INFO(first_of(on_devices(same).violations));
  CHECK(same.play().violations.empty());
  CHECK(on_devices(same).violations.empty());

  // One rank starts the sum before B of the next unit, the other after it.
  Ranks other = same;
  exchange(other.rows[1], "reduce 0", "B0.0[0,1)");
  CHECK(other.play().violations.empty());
  const Simulation hung = on_devices(other);
  REQUIRE(hung.violations.size() == 1);
  const std::string& text = hung.violations[0];
  INFO(text);
  CHECK(text.find("deadlock: ") == 0);
  CHECK(text.find("reduce 0") != std::string::npos);
  CHECK(text.find("B0.0[0,1)") != std::string::npos);
}

TEST_CASE("a sum of the tied embedding holds up the sums behind it", "[simulate]") {
  // Two stages of two replicas. Each rank has a sum with its replica, and one with the other stage.
  Ranks all = pipeline({gpipe(0, 2, 1), gpipe(1, 2, 1)}, 1);
  const BucketSum shared{.ready_unit = 0, .reduced = false, .embedding = true};
  const BucketSum own{.ready_unit = 0, .reduced = true};
  all.buckets = {{shared, own}, {shared, own}};
  for (std::size_t stage : {0, 1}) {
    all.rows[stage] = refine(all.rows[stage], all.ranks[stage].input, all.buckets[stage]);
  }
  all.ranks = {all.ranks[0], all.ranks[0], all.ranks[1], all.ranks[1]};
  all.rows = {all.rows[0], all.rows[0], all.rows[1], all.rows[1]};
  all.ranks[1].replica = all.ranks[3].replica = 1;
  all.cost = unit_cost;
  INFO(first_of(all.play().violations));
  CHECK(all.play().violations.empty());
  CHECK(on_devices(all).violations.empty());
  // One rank of each pair has its sums the other way round: all four wait for each other.
  for (const std::size_t rank : {0, 3}) exchange(all.rows[rank], "reduce 1", "reduce_embedding 0");
  CHECK(mentions(all.play(), "deadlock: "));
}

TEST_CASE("hosts that meet at a collective launch nothing behind it before", "[simulate]") {
  Ranks all = pipeline({gpipe(0, 2, 1), gpipe(1, 2, 1)}, 1);
  const BucketSum shared{.ready_unit = 0, .reduced = false, .embedding = true};
  all.buckets = {{shared}, {shared}};
  for (std::size_t stage : {0, 1}) {
    all.rows[stage] = refine(all.rows[stage], all.ranks[stage].input, all.buckets[stage]);
  }
  all.cost = unit_cost;
  CHECK(first_of(on_devices(all, true).violations).empty());
  // The last stage joins the sum before it sends what the first needs to come there.
  exchange(all.rows[1], "send_backward 0.0", "reduce_embedding 0");
  INFO(first_of(on_devices(all).violations));
  CHECK(on_devices(all).violations.empty());
  CHECK(mentions(on_devices(all, true), "deadlock: "));
}

TEST_CASE("messages between two chunks are received in the order in which they are sent",
          "[simulate]") {
  const auto swapped = [](std::vector<Action> rows) {
    rows.insert(rows.begin(), rows[3]);  // both fetches first
    rows.erase(rows.begin() + 4);
    exchange(rows, "receive_forward 0.0", "receive_forward 1.0");
    exchange(rows, "F0.0[0,1)", "F1.0[0,1)");
    return rows;
  };
  Ranks stages = pipeline({gpipe(0, 2, 2), gpipe(1, 2, 2)}, 2);
  stages.cost = unit_cost;
  CHECK(stages.play().violations.empty());
  stages.rows[1] = swapped(stages.rows[1]);
  CHECK(mentions(stages.play(), "is received as number 2, but sent as number 1"));
  CHECK(mentions(on_devices(stages), "deadlock: "));
}
