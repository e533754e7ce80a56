// Work that lasts longer than the deadline of those who wait for it.
#include "comm/others_wait.h"

#include <atomic>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "catch.h"
#include "comm/world.h"

using namespace trainctl;

namespace {
constexpr WorldOptions short_deadline{.deadline_seconds = 0.5, .report_hangs = true};

void work_long() { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); }
}  // namespace

TEST_CASE("the others wait longer than their deadline for a member that works") {
  std::atomic<int> worked = 0;
  std::atomic<int> came = 0;
  run_thread_world(3, short_deadline, [&](World& world) {
    const auto everyone = world.everyone("world");
    while_others_wait(*everyone, world.rank() != 1, [&] {
      if (world.rank() == 0) work_long();
      worked += 1;
    });
    came += worked == 2 ? 1 : 0;
    CHECK(gather_values(*everyone, 1.0).size() == 3);  // the group goes on
  });
  CHECK(came == 3);
}

TEST_CASE("what the work throws is thrown where it was done, after all are told") {
  std::atomic<int> failures = 0;
  run_thread_world(2, short_deadline, [&](World& world) {
    const auto everyone = world.everyone("world");
    try {
      while_others_wait(*everyone, world.rank() == 1, [] { throw Error(ExitCode::io, "full"); });
    } catch (const Error& error) {
      failures += world.rank() == 1 && error.code() == ExitCode::io ? 1 : 100;
    }
    CHECK(gather_values(*everyone, 1.0).size() == 2);
  });
  CHECK(failures == 1);
}

TEST_CASE("a group of one rank only works") {
  bool worked = false;
  const auto world = self_world();
  while_others_wait(*world->everyone("world"), true, [&] { worked = true; });
  CHECK(worked);
}
