// Work that lasts longer than the deadline of those who wait for it.
#include "comm/group.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/error.h"
#include "catch.h"
#include "comm/world.h"
#include "device/wait.h"

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
    while_others_wait(*everyone, "work", world.rank() != 1, [&] {
      if (world.rank() == 0) work_long();
      worked += 1;
    });
    came += worked == 2 ? 1 : 0;
    CHECK(gather_values(*everyone, 1.0).size() == 3);  // the group still works
  });
  CHECK(came == 3);
}

TEST_CASE("what the work throws is thrown on all members, after all are done") {
  std::atomic<int> failures = 0;
  run_thread_world(2, short_deadline, [&](World& world) {
    const auto everyone = world.everyone("world");
    try {
      while_others_wait(*everyone, "work", world.rank() == 1,
                        [] { throw Error(ExitCode::io, "full"); });
    } catch (const Error& error) {
      failures += error.code() == ExitCode::io && error.what() == std::string("full") ? 1 : 100;
    }
    CHECK(gather_values(*everyone, 1.0).size() == 2);
  });
  CHECK(failures == 2);
}

TEST_CASE("a thread that nothing answers uses no processor time, and one that looks again does") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const auto stuck_within = [](WorkingThread& worker, int looks) {
    for (int i = 0; i < looks; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (worker.is_stuck()) return true;
    }
    return false;
  };
  std::atomic<WorkingThread*> watched = nullptr;
  std::atomic<bool> looks_again = true;
  std::thread thread([&] {
    WorkingThread self(0.4);
    watched = &self;
    while (looks_again) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    char byte = 0;
    while (::read(pipe[0], &byte, 1) < 0) {
    }
  });
  while (watched == nullptr) std::this_thread::yield();
  CHECK_FALSE(stuck_within(*watched, 50));
  looks_again = false;
  CHECK(stuck_within(*watched, 500));
  CHECK(watched.load()->idle_seconds() >= 0.4);
  REQUIRE(::write(pipe[1], "x", 1) == 1);
  thread.join();
  for (const int end : pipe) ::close(end);
}

TEST_CASE("a group of one rank only works") {
  bool worked = false;
  const auto world = self_world();
  while_others_wait(*world->everyone("world"), "work", true, [&] { worked = true; });
  CHECK(worked);
}
