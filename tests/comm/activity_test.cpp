// Reports about the activity of a rank: their text, the rank that writes them, and when.
#include "comm/host/watch.h"

#include <condition_variable>
#include <mutex>

#include "catch.h"
#include "device/wait.h"

using namespace trainctl;

namespace {

std::string name_of_rank(int rank) { return "rank " + std::to_string(rank); }

/// Without the seconds, which depend on the machine.
std::string words_of(const Activity& activity) {
  std::string text = activity.text(7, name_of_rank);
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] != '.' || text.substr(i + 2, 2) != " s") continue;
    std::size_t begin = i;
    while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
    text.replace(begin, i + 2 - begin, "T");
    i = begin;
  }
  return text;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("what a rank is doing, in words") {
  Activity activity;
  CHECK(words_of(activity) == "before the first step: computes, T s");
  activity.name_actions([](std::int64_t action) { return "row " + std::to_string(action); });
  activity.start_step();
  activity.start(4);
  CHECK(words_of(activity) == "step 1, row 4: computes, T s");
  activity.finish();
  activity.start(5);
  CHECK(words_of(activity) == "step 1, row 5: computes, T s; last finished: row 4");
  {
    WaitNote sums(activity, "dp", {3, 5, 7});
    WaitNote messages(activity, "pp", {5, 6});
    REQUIRE(sums.begin("all_reduce", 9));
    CHECK_FALSE(sums.begin("barrier", 10));
    CHECK_FALSE(activity.waits());
    CHECK(holds(words_of(activity), "row 5: waits in all_reduce 'dp' (call 9) since T s;"));
    const std::vector<int> both{0, 2};
    sums.waits_for(both);
    CHECK(activity.waits());
    REQUIRE(messages.begin("receive", 0));
    const int one = 1;
    messages.waits_for({&one, 1});
    CHECK(words_of(activity) ==
          "step 1, row 5: waits in all_reduce 'dp' (call 9) for rank 3, rank 7, T s, and in "
          "receive 'pp' for rank 6, T s; last finished: row 4");
    const std::uint64_t before = activity.progress();
    sums.goes_on();
    CHECK(activity.progress() > before);
    messages.end();
    CHECK_FALSE(activity.waits());
    sums.end();
    CHECK(holds(words_of(activity), "computes"));
    sums.begin("barrier", 10);
  }
  CHECK(holds(words_of(activity), "computes"));  // the groups are gone
}

TEST_CASE("many missing ranks are counted, not listed") {
  Activity activity;
  std::vector<int> ranks(20);
  for (int i = 0; i < 20; ++i) ranks[static_cast<std::size_t>(i)] = i;
  WaitNote note(activity, "dp", ranks);
  note.begin("barrier", 1);
  note.waits_for(ranks);
  CHECK(holds(words_of(activity), "rank 6, rank 7 and 12 more, T s"));
}

TEST_CASE("the watch tells other processes once, and ends its own if that does not end") {
  Activity activity;
  std::mutex mutex;
  std::condition_variable changed;
  int told = 0;
  int ended = 0;
  WatchOptions options{.deadline_seconds = 600, .world_size = 2, .host = "here"};
  options.activities = {&activity};
  options.describe_rank = name_of_rank;
  options.tell_others = [&](int) { ++told; };
  options.end = [&] {
    const std::lock_guard lock(mutex);
    ++ended;
    changed.notify_all();
  };
  {
    Watch watch(std::move(options));
    activity.tell_hang();
    activity.tell_hang();
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended > 0; });
  }
  CHECK(told == 1);
  activity.tell_hang();  // nobody listens any more
  CHECK(told == 1);
}

TEST_CASE("the watch reports when another process does, or a wait is silent past the deadline") {
  for (const bool silent : {true, false}) {
    Activity activity;
    WaitNote note(activity, "dp", {0, 1});
    const int other = 1;
    if (silent) {
      note.begin("all_reduce", 1);
      note.waits_for({&other, 1});
    }
    std::atomic<int> ended = 0;
    std::atomic<int> told = 0;
    WatchOptions options{.deadline_seconds = silent ? 0.2 : 600, .world_size = 2, .host = "here"};
    options.activities = {&activity};
    options.describe_rank = name_of_rank;
    options.tell_others = [&](int) { ++told; };
    options.is_told = [&] { return silent ? std::nullopt : std::optional(Watch::none); };
    options.end = [&] { ++ended; };
    const Watch watch(std::move(options));
    while (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(told == (silent ? 1 : 0));
  }
}

TEST_CASE("a wait counts only time in which its process runs") {
  WaitLimit patience(0.75);
  std::this_thread::sleep_for(std::chrono::milliseconds(800));  // as if it had been suspended
  CHECK_FALSE(patience.over());
  CHECK(patience.waited() == 0.5);
  CHECK(patience.left() == 0.25);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(patience.over());
  CHECK(patience.waited() >= 0.8);
}

TEST_CASE("a rank that computes or makes progress is not a hang, however long it takes") {
  Activity activity;
  WaitNote note(activity, "dp", {0, 1});
  std::atomic<int> told = 0;
  WatchOptions options{.deadline_seconds = 0.3, .world_size = 2, .host = "here"};
  options.activities = {&activity};
  options.describe_rank = name_of_rank;
  options.tell_others = [&](int) { ++told; };
  const Watch watch(std::move(options));
  const int other = 1;
  for (int i = 0; i < 20; ++i) {  // a wait each time, each shorter than the deadline
    note.begin("all_reduce", 1);
    note.waits_for({&other, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    note.end();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1600));  // computing
  CHECK(told == 0);
}
