#include "base/parallel_for.h"

#include <atomic>
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

TEST_CASE("the thread count belongs to the calling thread") {
  set_thread_count(3);
  int seen = 0;
  std::thread([&] { seen = thread_count(); }).join();
  CHECK(seen == 1);
  CHECK(thread_count() == 3);
  set_thread_count(1);
}
