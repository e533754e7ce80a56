#include "base/parallel_for.h"

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "catch.h"

using namespace trainctl;

TEST_CASE("parallel_for covers every index once, whatever the thread count") {
  for (int threads : {1, 2, 3, 7}) {
    set_thread_count(threads);
    for (std::int64_t count : {0, 1, 2, 5, 64, 1001}) {
      for (std::int64_t grain : {1, 10, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
        std::atomic<int> calls{0};
        parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          ++calls;
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        for (const auto& visit : visits) REQUIRE(visit == 1);
        REQUIRE(calls <= threads);
        if (count > 0) REQUIRE(calls <= (count + grain - 1) / grain);
      }
    }
  }
  set_thread_count(1);
}

TEST_CASE("threads help one caller after another, and several at once", "[threads]") {
  const auto calls_of = [](int threads) {
    set_thread_count(threads);
    std::int64_t wrong = 0;
    for (int call = 0; call < 3000; ++call) {
      const std::int64_t count = 1 + call % 5;
      std::array<std::atomic<int>, 5> visits{};
      parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      for (std::int64_t i = 0; i < 5; ++i) {
        if (visits[static_cast<std::size_t>(i)] != (i < count ? 1 : 0)) ++wrong;
      }
    }
    return wrong;
  };
  std::int64_t wrong[3] = {-1, -1, -1};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 3; ++i) {
      callers.emplace_back([&, i] { wrong[i] = calls_of(2 + i); });
    }
  }
  for (const std::int64_t one : wrong) CHECK(one == 0);
}

TEST_CASE("threads that wait for work sleep after a short time") {
  const auto processor_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  set_thread_count(4);
  std::atomic<int> parts{0};
  parallel_for(4, 1, [&](std::int64_t, std::int64_t) { ++parts; });
  CHECK(parts == 4);
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(processor_seconds() - before < 0.02);
  set_thread_count(1);
}

TEST_CASE("threads that keep the caller waiting are not asked again for a while") {
  using Clock = std::chrono::steady_clock;
  // As where another program has taken the helper's core: its part lasts, the caller's does not.
  const auto call = [](std::thread::id& other) {
    const std::thread::id caller = std::this_thread::get_id();
    parallel_for(2, 1, [&](std::int64_t part, std::int64_t) {
      const bool helped = std::this_thread::get_id() != caller;
      if (part == 1) other = std::this_thread::get_id();
      const auto begin = Clock::now();
      const auto lasts = std::chrono::milliseconds(part == 0 ? 1 : helped ? 8 : 0);
      while (Clock::now() - begin < lasts) std::this_thread::yield();
    });
    return other != caller;
  };
  // On a thread of its own, so that no other test's calls count.
  int helped = 0;
  bool alone = false;
  bool helped_again = false;
  std::thread([&] {
    set_thread_count(2);
    std::thread::id other;
    const auto patience = Clock::now() + std::chrono::seconds(20);
    while (!alone && Clock::now() < patience) {
      alone = !call(other) && helped >= 8;
      helped += alone ? 0 : 1;
    }
    while (!helped_again && Clock::now() < patience) helped_again = call(other);
  }).join();
  CHECK(alone);
  CHECK(helped < 200);
  CHECK(helped_again);
}

TEST_CASE("the thread count belongs to the calling thread") {
  set_thread_count(3);
  int seen = 0;
  std::thread([&] { seen = thread_count(); }).join();
  CHECK(seen == 1);
  CHECK(thread_count() == 3);
  set_thread_count(1);
}
