// The worth of each decision of a search: the fastest layout that decides otherwise.
#pragma once

#include <string>
#include <vector>

#include "run/layouts/search_layouts.h"

namespace trainctl {

struct Decision {
  std::string key;         // "tensor_parallel"
  std::string taken;       // by the best
  std::string otherwise;   // by the layout
  StrategyOutcome layout;  // the fastest with another value: planned, or bounded from below
};

/// The decisions about the keys for which some layout of the space that was not refused has another
/// value. Those that cost most come first. Empty where nothing fits. Layouts to which an axis does
/// not apply decide nothing about it.
std::vector<Decision> decisions_of(const SearchedStrategies& searched);

/// Layouts by the values of two keys, with the best of all that have them.
struct StrategyMap {
  std::string row_key, column_key;
  std::vector<std::string> rows, columns;  // values, ascending
  /// The outcome of each row and column: planned, else bounded, else refused by the code of most
  /// layouts; nullptr where the space has none. One that was not planned is in each column of a
  /// searched recompute.
  std::vector<std::vector<const StrategyOutcome*>> cells;
};
/// tensor_parallel by pipeline_stages, and micro_batch_size by recompute. `searched` must outlive
/// them.
std::vector<StrategyMap> maps_of(const SearchedStrategies& searched);

}  // namespace trainctl
