// How long a wait has lasted: the one clock of all waits for other ranks. It counts only time in
// which this process runs, so that a job that was suspended as a whole goes on, and a rank that
// wakes up does not blame the others.
#pragma once

#include <algorithm>
#include <chrono>

namespace trainctl {

class Patience {
 public:
  explicit Patience(double seconds) : limit_(seconds), last_(Clock::now()) {}

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

}  // namespace trainctl
