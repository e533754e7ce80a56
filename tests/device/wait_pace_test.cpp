// How the host waits for a device, with a queue and a clock that are made up.
#include "device/wait.h"

#include <vector>

#include "catch.h"

using namespace trainctl;

namespace {

/// Time that passes only where somebody sleeps; a question takes some, too.
struct FakeTime {
  double now = 0;
  int questions = 0;
  void sleep(double seconds) { now += std::max(seconds, 1e-6); }
};

/// As WaitLimit, by the fake clock.
class FakePatience {
 public:
  FakePatience(const FakeTime& time, double seconds)
      : time_(time), begin_(time.now), seconds_(seconds) {}
  bool over() { return waited() >= seconds_; }
  double waited() const { return time_.now - begin_; }
  double left() const { return std::max(0.0, seconds_ - waited()); }

 private:
  const FakeTime& time_;
  double begin_, seconds_;
};

/// Waits for a queue that is done `work` seconds from now, and returns when that is seen.
double seen_after(WaitPace& pace, FakeTime& time, double work, double seconds = 1e9) {
  static std::uint64_t ticket = 0;
  const double begin = time.now;
  FakePatience patience(time, seconds);
  const auto reached = [&] {
    ++time.questions;
    return time.now >= begin + work;
  };
  const bool ended =
      wait_at_pace(pace, ++ticket, patience, reached, [&](double pause) { time.sleep(pause); });
  CHECK(ended == (time.now >= begin + work));
  return time.now - begin;
}

}  // namespace

TEST_CASE("a wait never ends before the queue, and less than 2 % after it") {
  for (const double work : {200e-6, 3e-3, 12e-3, 0.25, 1.7}) {
    INFO(work);
    WaitPace pace;
    FakeTime time;
    for (int step = 0; step < 8; ++step) {
      const double seen = seen_after(pace, time, work);
      CHECK(seen >= work);
      CHECK(seen < 1.02 * work + 2e-6);
    }
  }
}

TEST_CASE("steps that are alike are slept through, and seen at once") {
  WaitPace pace;
  FakeTime time;
  for (int step = 0; step < 4; ++step) seen_after(pace, time, 12e-3);
  time.questions = 0;
  CHECK(seen_after(pace, time, 12e-3) < 12e-3 + 2e-6);
  CHECK(time.questions < 1300);  // of a tenth of the step, one each microsecond
  CHECK(seen_after(pace, time, 12.5e-3) < 12.5e-3 + 2e-6);
  // One that takes longer, and the next.
  CHECK(seen_after(pace, time, 40e-3) < 1.02 * 40e-3);
  CHECK(seen_after(pace, time, 12e-3) < 1.02 * 12e-3);
}

TEST_CASE("short waits between long ones are not slept through") {
  WaitPace pace;
  FakeTime time;
  for (int step = 0; step < 6; ++step) {
    CHECK(seen_after(pace, time, 50e-6) < 60e-6);
    CHECK(seen_after(pace, time, 0.4) < 1.02 * 0.4);
  }
}

TEST_CASE("a deadline is kept, whatever was expected") {
  WaitPace pace;
  FakeTime time;
  for (int step = 0; step < 4; ++step) seen_after(pace, time, 2.0);
  for (const double seconds : {1e-3, 0.07, 1.0, 2.5}) {
    INFO(seconds);
    const double waited = seen_after(pace, time, 1e6, seconds);
    CHECK(waited >= seconds);
    CHECK(waited < seconds + 2e-6);
  }
}

TEST_CASE("a wait in parts continues where it was") {
  WaitPace pace;
  FakeTime time;
  const double work = 1.0;
  for (std::uint64_t step = 1; step < 6; ++step) {
    const double begin = time.now;
    const auto reached = [&] { return time.now >= begin + work; };
    const auto sleep = [&](double seconds) { time.sleep(seconds); };
    for (bool ended = false; !ended;) {
      FakePatience part(time, 0.05);
      ended = wait_at_pace(pace, step, part, reached, sleep);
    }
    CHECK(time.now - begin >= work);
    CHECK(time.now - begin < 1.02 * work);
  }
}
