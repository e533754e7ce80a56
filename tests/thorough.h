// How much a test tries. Every kind of case is in the default run; scripts/test.sh --thorough sets
// TRAINCTL_THOROUGH=1 for the full sweeps of sizes, seeds and combinations.
#pragma once

#include <initializer_list>
#include <ranges>
#include <vector>

/// Whether TRAINCTL_THOROUGH is set, to other than 0.
bool thorough();

/// Whether a sanitizer watches this build. It needs each kind of code once; that numbers are right
/// the release build has shown.
bool watched();

/// Whether sweeps are cut to each kind of code: under a sanitizer, unless the run is thorough.
inline bool brief() { return watched() && !thorough(); }

/// The stride through many cases of one kind: 1 if all are run.
inline int stride(int by_default) { return thorough() ? 1 : by_default * (watched() ? 8 : 1); }

/// Some of the values that lead through much the same code: the first and every fourth after it in
/// a brief run, else all.
template <class Range>
auto some_of(const Range& all) {
  std::vector<std::ranges::range_value_t<Range>> some;
  int number = 0;
  for (const auto& one : all) {
    if (!brief() || number++ % 4 == 0) some.push_back(one);
  }
  return some;
}
template <class T>
std::vector<T> some_of(std::initializer_list<T> all) {
  return some_of(std::vector<T>(all));
}

/// How many of something random a test tries.
inline int tries(int by_default, int thoroughly) {
  return thorough() ? thoroughly : watched() ? (by_default + 3) / 4 : by_default;
}
