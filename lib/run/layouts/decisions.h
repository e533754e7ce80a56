// The gain by each decision of a search, compared with the fastest layout with another value.
#pragma once

#include <string>
#include <vector>

#include "run/layouts/search_layouts.h"

namespace trainctl {

struct Decision {
  std::string key;            // name of the decided key, such as "tensor_parallel"
  std::string taken;          // value in the best layout
  std::string otherwise;      // value in `layout`
  ArrangementOutcome layout;  // the fastest with another value: planned, or with a lower bound
};

/// The decisions about keys for which some layout of the space that was not refused has another
/// value, the most expensive ones first. Empty if no layout fits. Ignores layouts to which an axis
/// does not apply.
std::vector<Decision> decisions_of(const SearchedArrangements& searched);

/// The layouts by the values of two keys: a table with the best layout in each cell.
struct ArrangementMap {
  std::string row_key, column_key;
  std::vector<std::string> rows, columns;  // values, ascending
  /// The outcome in each row and column: planned, else bounded, else refused with the most frequent
  /// code; nullptr if the space has no such layout. A layout that was not planned is in every
  /// column of recompute if that is searched.
  std::vector<std::vector<const ArrangementOutcome*>> cells;
};
/// Maps of tensor_parallel by pipeline_stages, and of micro_batch_size by recompute. `searched`
/// must outlive them.
std::vector<ArrangementMap> maps_of(const SearchedArrangements& searched);

}  // namespace trainctl
