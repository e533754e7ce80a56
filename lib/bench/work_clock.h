// The time of pieces of work on a stream: on a CPU by the caller's clock, on a device by events on
// the stream, so that the host's part is not in it.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "device/stream.h"
#include "device/time_marks.h"
#include "run/rates.h"

namespace trainctl {

class WorkClock {
 public:
  /// `stream` must outlive the clock. On a device it holds memory of four times its cache.
  explicit WorkClock(Stream& stream);

  /// Begins the first piece. On a device a copy goes first: it leaves nothing of the pieces'
  /// operands in the cache, and while it runs the host enqueues what is timed.
  void begin();
  /// Ends a piece and begins the next.
  void lap();
  /// Waits for the stream. Seconds of each piece since begin().
  std::vector<double> laps();

  template <class Body>
  double seconds(const Body& body) {
    begin();
    body();
    lap();
    return laps().front();
  }

 private:
  using Clock = std::chrono::steady_clock;
  void mark();

  Stream& stream_;
  std::unique_ptr<LargeCopy> before_;  // on a device
  TimeMarks events_;
  std::vector<Clock::time_point> times_;  // on a CPU
  std::size_t marks_ = 0;
};

}  // namespace trainctl
