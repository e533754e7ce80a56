#include "bench/work_clock.h"

#include <algorithm>

#include "device/cuda_device.h"

namespace trainctl {

WorkClock::WorkClock(Stream& stream) : stream_(stream) {
  if (stream.device() == DeviceKind::cpu) return;
  before_ = std::make_unique<LargeCopy>(stream.device(), bytes_beyond_cache(stream.device()));
}

void WorkClock::begin() {
  events_.clear();
  times_.clear();
  marks_ = 0;
  if (before_) before_->enqueue(stream_);
  mark();
}

void WorkClock::lap() { mark(); }

void WorkClock::mark() {
  ++marks_;
  if (before_) {
    events_.set(stream_);
  } else {
    times_.push_back(Clock::now());
  }
}

std::vector<double> WorkClock::laps() {
  if (before_) stream_.synchronize();
  const auto at = [&](std::size_t mark) {
    if (before_) return events_.seconds(mark);
    return std::chrono::duration<double>(times_[mark] - times_[0]).count();
  };
  std::vector<double> seconds;
  for (std::size_t mark = 1; mark < marks_; ++mark) seconds.push_back(at(mark) - at(mark - 1));
  return seconds;
}

}  // namespace trainctl
