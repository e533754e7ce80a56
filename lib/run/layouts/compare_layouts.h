// The answers of a search besides the best: less memory, other prices, and what would fit.
#pragma once

#include "run/layouts/search_layouts.h"
#include "run/layouts/search_once.h"

namespace trainctl {

/// Searches each eighth of the limit that the best so far is above, and keeps what no other beats
/// in seconds and bytes. Such a search ends early where it has drafted or planned the number of
/// layouts as the whole one.
void add_frontier(const StrategySearch& search, KnownStrategies& known,
                  SearchedStrategies& searched);

/// Adds the ledgers of the best and of those that are compared with it, and prices the layouts that
/// were planned again for each figure of the cluster: all, or the fastest where that would take
/// long.
void compare_layouts(const StrategySearch& search, const Machine& machine,
                     SearchedStrategies& searched);

/// Describes a search that found nothing. Tried are limits from what the leanest layout lacks on,
/// and two, three, four, six and more times the ranks; where no layout divides, the next numbers.
EmptySpace empty_space(const StrategySearch& search, const Machine& machine,
                       const SearchedStrategies& searched);

}  // namespace trainctl
