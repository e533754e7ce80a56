// The measurement of collectives: sizes, bandwidths as nccl-tests defines them, wrong results.
#include "bench/comm/collective_speed.h"

#include <map>
#include <set>

#include "catch.h"
#include "faulty_world.h"

using namespace trainctl;

namespace {

const CommBench small{.min_bytes = 100, .max_bytes = 5000, .factor = 10, .iterations = 2};

std::vector<CollectiveSpeed> measure(int ranks, const std::vector<GroupFault>& faults = {}) {
  std::vector<CollectiveSpeed> found;
  run_thread_world(ranks, {}, [&](World& world) {
    const auto faulty = faulty_world(world, faults);
    const auto mine = measure_collectives(*faulty, small);
    if (world.rank() == 0) found = mine;
  });
  return found;
}

}  // namespace

TEST_CASE("every operation is measured at every size", "[threads]") {
  std::map<std::string, std::set<std::int64_t>> sizes;
  for (const CollectiveSpeed& speed : measure(3)) {
    INFO(speed.operation << " " << speed.bytes);
    CHECK(sizes[speed.operation].insert(speed.bytes).second);
    CHECK(speed.seconds > 0);
    CHECK(speed.wrong == 0);
    CHECK(speed.algorithm_rate ==
          Approx(static_cast<double>(speed.bytes) / speed.seconds).margin(1e-6));
  }
  // Whole floats for each of three ranks.
  for (const char* name :
       {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_receive"}) {
    INFO(name);
    CHECK(sizes[name] == std::set<std::int64_t>{96, 996});
  }
  CHECK(sizes["barrier"] == std::set<std::int64_t>{0});
  CHECK(sizes.size() == 7);
}

TEST_CASE("what a link carries of each byte") {
  // 4 ranks: nccl-tests, doc/PERFORMANCE.md.
  const std::map<std::string, double> four{{"all_reduce", 1.5},  {"reduce_scatter", 0.75},
                                           {"all_gather", 0.75}, {"all_to_all", 0.75},
                                           {"broadcast", 1},     {"send_receive", 1}};
  for (const auto& [operation, factor] : four) {
    INFO(operation);
    CHECK(bus_factor(operation, 4) == factor);
  }
  for (const CollectiveSpeed& speed : measure(2)) {
    CHECK(speed.bus_rate == Approx(speed.algorithm_rate * bus_factor(speed.operation, 2)));
  }
}

TEST_CASE("sizes that are the same in whole floats are measured once") {
  CHECK(sizes_of({.min_bytes = 4, .max_bytes = 64, .factor = 2}, 4) ==
        std::vector<std::int64_t>{16, 32, 64});
  CHECK(sizes_of({.min_bytes = 1000, .max_bytes = 1000, .factor = 2}, 3) ==
        std::vector<std::int64_t>{996});
}

TEST_CASE("an operation that gives wrong elements is found", "[threads]") {
  const auto spoil = with_output([](const Tensor& x) { x.as<float>()[1] += 1; });
  for (const auto& [name, operation] :
       std::map<std::string, GroupOperation>{{"all_reduce", GroupOperation::all_reduce},
                                             {"reduce_scatter", GroupOperation::reduce_scatter},
                                             {"all_gather", GroupOperation::all_gather},
                                             {"broadcast", GroupOperation::broadcast},
                                             {"all_to_all", GroupOperation::all_to_all},
                                             {"send_receive", GroupOperation::receive}}) {
    INFO(name);
    const auto found =
        measure(2, {{.rank = 1, .group = "measured", .operation = operation, .act = spoil}});
    for (const CollectiveSpeed& speed : found) {
      const bool spoiled = speed.operation == name && speed.bytes == 96;
      INFO(speed.operation << " " << speed.bytes);
      CHECK(speed.wrong == (spoiled ? 1 : 0));
    }
  }
}
