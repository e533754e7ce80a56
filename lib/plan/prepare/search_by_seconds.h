// Search of dynamic_programming: the split of operators with the least planned seconds of a step
// that fits a rank's memory (docs/auto-parallel.md).
#pragma once

#include <optional>

#include "plan/search/search.h"

namespace trainctl {

/// Searches the number of ranks that share operators, and the splits of the embedding, the head,
/// and for each kind of layer of attention and feed_forward: the first layers of a kind may have
/// one pair, the others another. Layouts are taken in the order of a lower bound of their seconds:
/// first the passes of their layers and the rest that no layout hides, then a draft
/// (plan/cost/min_needs.h). The layout with the lowest bound is planned. At most 200 are planned
/// and 2000 drafted. Then one with another number of ranks is sought briefly, for comparison.
///
/// Without cluster.device, a default device on every host gives the prices: warning
/// "search-default-device". Error "search-space-empty" if no layout fits. Also nullopt if given
/// values conflict: "search-operator", or a rule for all configurations. If rules refuse every
/// layout, one is returned, and its errors will be reported.
std::optional<SearchReport> search_by_seconds(const SearchInput& input, Check& check);

}  // namespace trainctl
