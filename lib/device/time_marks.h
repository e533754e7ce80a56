// Points in the time of a device's stream: when all that was enqueued before is done.
#pragma once

#include <cstddef>
#include <vector>

#include "device/stream.h"

namespace trainctl {

/// For CUDA streams; a CPU stream that works in the caller is timed by the caller's clock.
class TimeMarks {
 public:
  TimeMarks() = default;
  ~TimeMarks();
  TimeMarks(const TimeMarks&) = delete;
  TimeMarks& operator=(const TimeMarks&) = delete;

  /// Begins again with mark 0. Allocates only where more marks are set than ever before.
  void clear() { used_ = 0; }
  /// Sets the next mark and returns its number.
  std::size_t set(const Stream& stream);
  /// Seconds from mark 0; the host has waited for the stream.
  double seconds(std::size_t mark) const;

 private:
  std::vector<void*> marks_;
  std::size_t used_ = 0;
};

}  // namespace trainctl
