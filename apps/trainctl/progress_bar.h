// The progress of a long job, on stderr: one live line on a terminal, otherwise a plain line every
// few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace trainctl {

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();  // ends the live line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Reports bytes done of `total`; cheap enough to call often, from any thread.
  void update(std::int64_t done, std::int64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(std::int64_t done, std::int64_t total, double seconds) const;

  std::string what_;
  bool live_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point shown_;
  std::mutex mutex_;
};

}  // namespace trainctl
