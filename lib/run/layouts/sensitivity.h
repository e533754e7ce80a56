// The effect of the figures of section cluster on the answer of a search: seconds of its layouts
// where one figure is 20 % less or more, and where another layout becomes the fastest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/prices/machine.h"

namespace trainctl {

/// Seconds of a step if one figure of the machine had another value.
struct ChangedFigure {
  std::string figure;         // "network bandwidth"
  std::string unit;           // "FLOP/s", "bytes/s", "s" or "" of a share
  double value = 0;           // of the machine
  double less = 0, more = 0;  // seconds with 0.8 and 1.2 of it
  bool is_rate = true;        // more of it is faster
};
inline constexpr double less_of_figure = 0.8, more_of_figure = 1.2;

/// The figures of a plan in which nothing but prices changes: the recomputed parts stay. Figures
/// that no row of the machine has (one host has no network) are left out, so all plans of a search
/// have the same.
std::vector<ChangedFigure> repriced(const Plan& plan, const Machine& machine);

/// The prices of one of the layouts that a search compares.
struct PricedStrategy {
  double seconds = 0;
  std::vector<ChangedFigure> changed;
};
struct Sensitivity {
  ChangedFigure best;                              // its seconds
  std::size_t fastest_less = 0, fastest_more = 0;  // numbers of the fastest layouts
  double seconds_less = 0, seconds_more = 0;       // of these
  /// The nearest values at which another layout is as fast as the best, and its number: from a
  /// quarter of the figure to four times. Seconds are taken as linear in the figure, of a rate in
  /// its inverse, on either side.
  struct Change {
    double value = 0;
    std::size_t layout = 0;
  };
  std::optional<Change> below{}, above{};
};
/// The first layout is the best. Those that change most come first; what no layout uses is left
/// out.
std::vector<Sensitivity> sensitivities(const std::vector<PricedStrategy>& layouts);

/// "989 TFLOP/s", "50 GB/s", "14 us", "15 %"
std::string figure_text(double value, const std::string& unit);

}  // namespace trainctl
