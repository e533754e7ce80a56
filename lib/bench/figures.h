// What all benchmarks take and print.
#pragma once

#include <chrono>
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

/// Shows on stderr which part of a benchmark of many parts begins.
void begin_part(const std::string& what);

/// What follows a figure that has a limit.
const char* verdict(bool kept);

}  // namespace trainctl
