// Comparisons after a search: faster layouts for less memory, other prices, sizes that would fit.
#pragma once

#include "run/layouts/search_layouts.h"
#include "run/layouts/search_once.h"

namespace trainctl {

/// Searches within seven eighths of the memory limit, six eighths and so on, if the best layout so
/// far needs more, and keeps the layouts that no other beats in both seconds and bytes. Each search
/// ends after drafting or planning the number of layouts that the whole search did.
void add_frontier(const ArrangementSearch& search, KnownArrangements& known,
                  SearchedArrangements& searched);

/// Adds ledgers to the best layout and to those compared with it. Prices the planned layouts again
/// for each changed figure of the cluster, or only the fastest ones if all would take long.
void compare_layouts(const ArrangementSearch& search, const Machine& machine,
                     SearchedArrangements& searched);

/// Describes a search that found no layout. Tries larger limits, from the need of the leanest
/// layout on, and 2, 3, 4, 6 ... times the ranks, or if the sizes of no layout divide, the next
/// numbers.
EmptySpace empty_space(const ArrangementSearch& search, const Machine& machine,
                       const SearchedArrangements& searched);

}  // namespace trainctl
