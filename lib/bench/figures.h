// What all benchmarks take and print.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trainctl {

/// The time that a call of `body` takes.
template <class Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Of at least one value.
double median(std::vector<double> values);

/// The middle of some values, and how far they reach.
struct Range {
  double median = 0, low = 0, high = 0;
  std::int64_t count = 0;
  /// "1.14  (1.11 .. 1.32, 5 pairs)", each figure as `text` writes it.
  std::string of_pairs(const std::function<std::string(double)>& text) const;
  /// The same with figures in printf's `format`.
  std::string of_pairs(const char* format) const;
};
/// Of at least one value.
Range range_of(const std::vector<double>& values);

/// above[i] / below[i] of each pair of measurements.
std::vector<double> ratios_of(const std::vector<double>& above, const std::vector<double>& below);

/// One of two measurements that take turns.
struct Timed {
  const char* what;
  double seconds = 0;
};
/// Shows on stderr "pair 3/7: step 1.234 s, its products 1.105 s"; `pair` counts from 0.
void say_pair(int pair, int pairs, const Timed& one, const Timed& other);

/// Shows on stderr which part of a benchmark of many parts begins.
void begin_part(const std::string& what);

/// What follows a figure that has a limit.
const char* verdict(bool kept);

}  // namespace trainctl
