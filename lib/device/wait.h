// Support for waits: a clock, the polling interval for a device, and a test whether a thread that
// others wait for still makes progress.
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
/// a suspended job can continue, and a rank that wakes up does not blame the others.
class WaitLimit {
 public:
  explicit WaitLimit(double seconds) : limit_(seconds), last_(Clock::now()) {}

  /// Whether the limit is reached. Call it several times per second while waiting: each call counts
  /// at most half a second, however late it comes.
  bool over() {
    const Clock::time_point now = Clock::now();
    const double passed = std::chrono::duration<double>(now - last_).count();
    waited_ += std::min(passed, longest_step);
    last_ = now;
    return waited_ >= limit_;
  }
  double waited() const { return waited_; }
  double left() const { return std::max(0.0, limit_ - waited_); }
  /// The time to wait before the next check of the clock and of the other ranks.
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

// The polling of a device by a waiting host: frequent enough to see completion at once, and rare
// enough to leave the core to other threads during a long wait.

/// The polling of one stream's waits, most of which are similar: waits for the end of a step.
class WaitPace {
 public:
  /// Seconds to sleep before the next poll, if a wait has lasted `waited` seconds; 0 polls again at
  /// once. Sleeps until 0.9 of the shortest recent wait, then polls busily until 1.1. After that,
  /// or without recent waits, sleeps 1/64 of the time waited, so that completion is seen less than
  /// 2 % late.
  double pause(double waited) const {
    const double expected = *std::min_element(last_.begin(), last_.end());
    if (waited < early * expected) return std::min(early * expected - waited, longest_pause);
    if (waited < late * expected) return 0;
    const double part = waited / 64;
    return part < shortest_pause ? 0 : std::min(part, longest_pause);
  }
  /// Seconds already waited for this ticket. A wait may have several parts, with checks of other
  /// ranks in between.
  double begin(std::uint64_t ticket) {
    if (ticket != ticket_) waited_ = 0;
    ticket_ = ticket;
    return waited_;
  }
  /// Ends a part of the wait, which has lasted `waited` seconds in total. `ended` is true for the
  /// last part.
  void end(double waited, bool ended) {
    waited_ = waited;
    if (!ended) return;
    last_[next_] = waited;
    next_ = (next_ + 1) % last_.size();
  }

 private:
  static constexpr double early = 0.9, late = 1.1;
  static constexpr double shortest_pause = 50e-6;  // shortest useful sleep of the system
  static constexpr double longest_pause = 0.05;    // so that deadlines are checked in between

  // Waits within a step are shorter than waits for its end; the shortest decides.
  std::array<double, 4> last_{};
  std::size_t next_ = 0;
  std::uint64_t ticket_ = 0;
  double waited_ = 0;
};

/// Waits until reached() holds (it must not become false again). Returns false if `patience` was
/// over first. sleep(seconds) must sleep; sleep(0) yields the core.
template <class WaitLimit, class Reached, class Sleep>
bool wait_at_pace(WaitPace& pace, std::uint64_t ticket, WaitLimit& patience, const Reached& reached,
                  const Sleep& sleep) {
  bool ended = reached();
  if (ended) return true;  // not recorded: says nothing about later waits
  const double before = pace.begin(ticket);
  while (!ended && !patience.over()) {
    sleep(std::min(pace.pause(before + patience.waited()), patience.left()));
    ended = reached();
  }
  pace.end(before + patience.waited(), ended);
  return ended;
}

// A test whether a thread that others wait for still makes progress.

/// A working thread, however slow, uses processor time: also while it reads or writes, since the
/// system wakes it for each part, or polls. A thread blocked by a disk or server that does not
/// answer uses none.
class WorkingThread {
 public:
  /// The thread counts as stuck after `seconds` without processor time.
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
  /// Call it several times per second, always on the same thread, while `thread` exists.
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
  double used_ = 0;  // seconds at the last call that saw a change
};

}  // namespace trainctl
