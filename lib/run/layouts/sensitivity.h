// The effect of the figures of section cluster on the result of a search: seconds of the layouts
// with a figure 20 % lower or higher, and values at which another layout becomes the fastest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/prices/machine.h"

namespace trainctl {

/// Seconds of a step if one figure of the machine changes.
struct ChangedFigure {
  std::string figure;         // such as "network bandwidth"
  std::string unit;           // "FLOP/s", "bytes/s", "s", or "" for a share
  double value = 0;           // value of the machine
  double less = 0, more = 0;  // seconds of a step with 0.8 and 1.2 times the value
  bool is_rate = true;        // a larger value is faster
};
inline constexpr double less_of_figure = 0.8, more_of_figure = 1.2;

/// The step's seconds with each figure changed. The plan's recomputed parts stay, only prices
/// change. Figures that no row of this machine uses (one host has no network) are omitted, so all
/// plans of a search have the same figures.
std::vector<ChangedFigure> repriced(const Plan& plan, const Machine& machine);

struct Sensitivity {
  ChangedFigure best;                              // the figure, and seconds of the best layout
  std::size_t fastest_less = 0, fastest_more = 0;  // index of the fastest layout with that value
  double seconds_less = 0, seconds_more = 0;       // seconds of the fastest layout with that value
  /// The nearest value, between a quarter of the figure and four times it, at which another layout
  /// is as fast as the best, and the index of that layout. On each side, seconds are assumed to be
  /// linear in the figure, or for a rate in its inverse.
  struct Change {
    double value = 0;
    std::size_t layout = 0;
  };
  std::optional<Change> below{}, above{};
};
struct FoundArrangement;  // run/layouts/search_layouts.h
/// The layouts were priced again with the same figures, and the first one is the best. Figures with
/// the largest changes come first; figures that no layout uses are omitted.
std::vector<Sensitivity> sensitivities(const std::vector<FoundArrangement>& layouts);

/// A value with its unit: "989 TFLOP/s", "50 GB/s", "14 us", "15 %".
std::string figure_text(double value, const std::string& unit);

}  // namespace trainctl
