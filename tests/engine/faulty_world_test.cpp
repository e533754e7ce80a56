// That each fault does what it says: the tests that inject faults rely on it.
#include "faulty_world.h"

#include <array>
#include <mutex>

#include "base/error.h"
#include "catch.h"
#include "config/read/read.h"
#include "plan/prepare/make_plan.h"
#include "sample_run.h"
#include "verify/verify.h"

using namespace trainctl;

namespace {

using FaultList = std::vector<GroupFault>;

/// Two ranks sum {1, 2} three times over "a"; what rank 0 then holds, and how often it was called.
std::array<float, 2> sums_of(const FaultList& faults) {
  std::array<float, 2> result{};
  run_thread_world(2, {.deadline_seconds = 5}, [&](World& world) {
    const auto faulty = faulty_world(world, faults);
    const std::vector<int> both{0, 1};
    const auto group = faulty->group("a", both);
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::queued);
    std::array<float, 2> values{1, 2};
    const Tensor data = host_tensor(values.data(), 2);
    for (int i = 0; i < 3; ++i) group->all_reduce(data, stream);
    stream.synchronize();
    if (world.rank() == 0) result = values;
  });
  return result;
}

/// A fault on both ranks, so that the calls match.
FaultList of_both(int occurrence, const FaultAction& act,
                  std::optional<GroupOperation> operation = GroupOperation::all_reduce) {
  FaultList faults;
  for (const int rank : {0, 1}) {
    faults.push_back({rank, "a", operation, occurrence, act});
  }
  return faults;
}

using Values = std::array<float, 2>;

void add_one(const Tensor& data) { data.as<float>()[0] += 1; }

}  // namespace

TEST_CASE("a fault acts on the call it names and on no other") {
  CHECK(sums_of({}) == Values{8, 16});
  CHECK(sums_of(of_both(1, left_out())) == Values{4, 8});
  CHECK(sums_of(of_both(0, left_out())) == Values{1, 2});
  CHECK(sums_of(of_both(4, left_out())) == Values{8, 16});
  CHECK(sums_of(of_both(2, made_twice())) == Values{16, 32});
  CHECK(sums_of(of_both(1, left_out(), GroupOperation::broadcast)) == Values{8, 16});
  CHECK(sums_of(of_both(1, left_out(), std::nullopt)) == Values{4, 8});
  CHECK(sums_of({{0, "b", std::nullopt, 1, left_out()}}) == Values{8, 16});
  CHECK(sums_of({{1, "a", std::nullopt, 2, with_input(add_one)}}) == Values{10, 16});
  CHECK(sums_of({{0, "a", std::nullopt, 3, with_output(add_one)}}) == Values{9, 16});
  bool waited = false;
  CHECK(sums_of({{0, "a", std::nullopt, 3, after([&] { waited = true; })}}) == Values{8, 16});
  CHECK(waited);
}

TEST_CASE("a call that is left out on one rank leaves the other waiting", "[threads]") {
  try {
    sums_of({{1, "a", std::nullopt, 3, left_out()}});
    FAIL("nobody waited");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::peer);
  }
}

TEST_CASE("exchanged calls are made in the other order") {
  std::string order;
  run_thread_world(2, {.deadline_seconds = 5}, [&](World& world) {
    FaultList faults;
    for (const int rank : {0, 1}) {
      for (const GroupFault& fault : exchanged({rank, "a", {}, 1, {}}, {rank, "b", {}, 1, {}})) {
        faults.push_back(fault);
      }
    }
    const auto faulty = faulty_world(world, faults);
    const std::vector<int> both{0, 1};
    const auto a = faulty->group("a", both);
    const auto b = faulty->group("b", both);
    Stream stream(DeviceKind::cpu, "comm", Stream::Mode::run_inline);
    float value = 1;
    const Tensor data = host_tensor(&value, 1);
    a->all_reduce(data, stream);
    value += 1;
    b->all_reduce(data, stream);
    if (world.rank() == 0) order = std::to_string(value);
  });
  CHECK(order == std::to_string(8.0F));  // ((1 + 1) * 2) * 2, not (1 * 2 + 1) * 2
}

TEST_CASE("a message can be left out or damaged", "[threads]") {
  std::mutex mutex;
  float received = 0;
  const auto deliver = [&](const FaultList& faults) {
    run_thread_world(2, {.deadline_seconds = 0.2}, [&](World& world) {
      const auto faulty = faulty_world(world, faults);
      const std::vector<int> both{0, 1};
      const auto group = faulty->group("pp", both);
      Stream stream(DeviceKind::cpu, "comm", Stream::Mode::run_inline);
      float value = world.rank() == 0 ? 5 : 0;
      const Tensor data = host_tensor(&value, 1);
      const Event event =
          world.rank() == 0 ? group->send(data, 1, 0, stream) : group->receive(data, 0, 0, stream);
      Stream::wait_host(event, 5);
      const std::lock_guard lock(mutex);
      if (world.rank() == 1) received = value;
    });
    return received;
  };
  CHECK(deliver({}) == 5);
  CHECK(deliver({{1, "pp", GroupOperation::receive, 1, with_output(add_one)}}) == 6);
  CHECK(deliver({{0, "pp", GroupOperation::send, 1, with_input(add_one)}}) == 6);
  CHECK_THROWS_AS(deliver({{0, "pp", GroupOperation::send, 1, left_out()}}), Error);
}

TEST_CASE("a layout under verification runs in the world that a fault gives it") {
  const Config config =
      read_config_text(sample_yaml(), "sample.yaml", {"parallel.data_parallel=2"}).config;
  Diagnostics diagnostics;
  const Plan plan = make_plan(config, {.world_size = 2, .ranks_per_host = 2}, {}, diagnostics);
  const Verification verification(config, 1);
  CHECK(verification.compare({config, plan, 20}).equal);
  const FaultList damaged{{0, "gradients dp", GroupOperation::all_reduce, 1, with_input(add_one)}};
  const LayoutVerdict verdict = verification.compare(
      {config, plan, 20}, {.world = [&](World& world) { return faulty_world(world, damaged); }});
  REQUIRE(verdict.first);
  CHECK(verdict.first->what == "gradient");
}
