// Waits: their clock, the pace of questions to a device, and whether a thread that others wait for
// still works.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace trainctl {

/// The clock of all waits for other ranks. It counts only time in which this process runs, so that
/// a job that was suspended as a whole continues, and a rank that wakes up does not blame the
/// others.
class WaitLimit {
 public:
  explicit WaitLimit(double seconds) : limit_(seconds), last_(Clock::now()) {}

  /// Call several times per second while waiting: one look adds at most half a second, however
  /// late it comes.
  bool over() {
    const Clock::time_point now = Clock::now();
    const double passed = std::chrono::duration<double>(now - last_).count();
    waited_ += std::min(passed, longest_step);
    last_ = now;
    return waited_ >= limit_;
  }
  double waited() const { return waited_; }
  double left() const { return std::max(0.0, limit_ - waited_); }
  /// How long to wait until the next look at the clock and at the world's health.
  std::chrono::duration<double> until_next_look() const {
    return std::chrono::duration<double>(std::min(look_interval, left()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double longest_step = 0.5;    // seconds
  static constexpr double look_interval = 0.05;  // seconds

  double limit_;
  double waited_ = 0;
  Clock::time_point last_;
};

// How the host waits for a device, which it has to ask: often enough to see the end at once, and
// seldom enough to leave the core to others while there is long to wait.

/// The pace of one stream's waits. Most of these are alike: the waits for the end of a step.
class WaitPace {
 public:
  /// Seconds to sleep before the next question, of a wait that has lasted `waited` seconds; 0: ask
  /// again at once. It sleeps until nine tenths of what the shortest of the last waits took, and
  /// asks busily around that. Later, and without one to go by, it sleeps 1/64 of what has passed,
  /// so that it sees the end less than 2 % late.
  double pause(double waited) const {
    const double expected = *std::min_element(last_.begin(), last_.end());
    if (waited < early * expected) return std::min(early * expected - waited, longest_pause);
    if (waited < late * expected) return 0;
    const double part = waited / 64;
    return part < shortest_pause ? 0 : std::min(part, longest_pause);
  }
  /// The seconds that the wait for a ticket has lasted: it may be waited for in several parts, with
  /// a look at other ranks between them.
  double begin(std::uint64_t ticket) {
    if (ticket != ticket_) waited_ = 0;
    ticket_ = ticket;
    return waited_;
  }
  /// Ends a part of the wait, which has lasted `waited` seconds in all. `ended` is true for the
  /// last part.
  void end(double waited, bool ended) {
    waited_ = waited;
    if (!ended) return;
    last_[next_] = waited;
    next_ = (next_ + 1) % last_.size();
  }

 private:
  static constexpr double early = 0.9, late = 1.1;
  static constexpr double shortest_pause = 50e-6;  // of what the system can sleep
  static constexpr double longest_pause = 0.05;    // looks at the deadline in between

  // Waits within a step are shorter than those for its end: the shortest of all decides.
  std::array<double, 4> last_{};
  std::size_t next_ = 0;
  std::uint64_t ticket_ = 0;
  double waited_ = 0;
};

/// Waits until reached() holds, which is so from some time on; false: `patience` (patience.h) was
/// over before. sleep(seconds) sleeps, with 0 it lets others run.
template <class WaitLimit, class Reached, class Sleep>
bool wait_at_pace(WaitPace& pace, std::uint64_t ticket, WaitLimit& patience, const Reached& reached,
                  const Sleep& sleep) {
  bool ended = reached();
  if (ended) return true;  // which says nothing about the next
  const double before = pace.begin(ticket);
  while (!ended && !patience.over()) {
    sleep(std::min(pace.pause(before + patience.waited()), patience.left()));
    ended = reached();
  }
  pace.end(before + patience.waited(), ended);
  return ended;
}

// Whether a thread that others wait for still works.

/// A thread that works, however slowly, uses processor time: also one that reads or writes, since
/// the system wakes it for each part, and one that looks again and again for what it waits for. A
/// thread that a disk or a server does not answer uses none.
class WorkingThread {
 public:
  /// `thread` may use no processor time for `seconds`.
  explicit WorkingThread(double seconds, pthread_t thread = pthread_self())
      : seconds_(seconds),
        patience_(seconds),
        known_(pthread_getcpuclockid(thread, &clock_) == 0) {}

  /// Processor time so far; 0 once the thread has ended.
  double used_seconds() const {
    timespec time{};
    if (!known_ || clock_gettime(clock_, &time) != 0) return 0;
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  /// Call several times per second, on any one thread, as long as the thread is there.
  bool is_stuck() {
    const double now = used_seconds();
    if (now == used_) return patience_.over();
    used_ = now;
    patience_ = WaitLimit(seconds_);
    return false;
  }
  double idle_seconds() const { return patience_.waited(); }

 private:
  double seconds_;
  WaitLimit patience_;
  clockid_t clock_{};
  bool known_;
  double used_ = 0;  // at the last look that found a change
};

}  // namespace trainctl
