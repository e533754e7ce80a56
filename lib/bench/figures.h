// Figures and clocks that all benchmarks share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/stream.h"
#include "ops/context.h"
#include "run/rates.h"

namespace trainctl {

/// The time that a call of `body` takes.
template <class Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The middle of `values`, which must not be empty.
double median(std::vector<double> values);

/// The median of some values, their range and number: "1.14  (1.11 .. 1.32, 5 pairs)", each figure
/// as `text` writes it. `values` must not be empty.
std::string spread_of_pairs(const std::vector<double>& values,
                            const std::function<std::string(double)>& text);
/// With figures in printf's `format`.
std::string spread_of_pairs(const std::vector<double>& values, const char* format);

/// above[i] / below[i] of each pair of measurements.
std::vector<double> ratios_of(const std::vector<double>& above, const std::vector<double>& below);

/// Shows on stderr "pair 3/7: step 1.234 s, its products 1.105 s", for two measurements that
/// alternate; `pair` counts from 0.
void say_pair(int pair, int pairs, const char* one, double one_seconds, const char* other,
              double other_seconds);

/// Shows on stderr which part of a benchmark begins.
void begin_part(const std::string& what);

/// The words after a figure that has a limit.
const char* verdict(bool kept);

// The time of pieces of work on a stream: on a CPU by the caller's clock, on a device by events on
// the stream, which leave out the host's time.

class WorkClock {
 public:
  /// `stream` must outlive the clock, which on a device holds memory of four times its cache.
  explicit WorkClock(Stream& stream);

  /// Begins the first piece. On a device a copy runs before: it removes the pieces' operands from
  /// the cache, and while it runs the host enqueues the timed work.
  void begin();
  /// Ends a piece and begins the next.
  void lap();
  /// Waits for the stream. Returns the seconds of each piece since begin().
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
  std::unique_ptr<LargeCopy> before_;  // only on a device
  TimeMarks events_;
  std::vector<Clock::time_point> times_;  // only on a CPU
  std::size_t marks_ = 0;
};

// The rates of this rank's threads or device, measured alternately with the work to compare.

class MachineLimits {
 public:
  /// `ops` must outlive this object.
  MachineLimits(const OpContext& ops, DType compute);
  /// Measures once more; the best of all rounds counts. Takes about 100 ms on a CPU.
  void measure();
  double products() const { return products_; }  // FLOP/s
  double copies() const { return copies_; }      // bytes per second, read and written

 private:
  const OpContext& ops_;
  WorkClock clock_;
  std::unique_ptr<SquareProduct> product_;
  LargeCopy copy_;
  double products_ = 0, copies_ = 0;
};

}  // namespace trainctl
