// Whether a thread that others wait for still works.
#pragma once

#include <pthread.h>

#include <ctime>

#include "device/patience.h"

namespace trainctl {

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
    patience_ = Patience(seconds_);
    return false;
  }
  double idle_seconds() const { return patience_.waited(); }

 private:
  double seconds_;
  Patience patience_;
  clockid_t clock_{};
  bool known_;
  double used_ = 0;  // at the last look that found a change
};

}  // namespace trainctl
