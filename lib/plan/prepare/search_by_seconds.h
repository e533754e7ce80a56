// dynamic_programming: the split of operators with the least planned seconds of a step in a rank's
// memory (docs/auto-parallel.md).
#pragma once

#include <optional>

#include "plan/search/search.h"

namespace trainctl {

/// Searched are the ranks that share operators, and the words of the embedding, the head, and of
/// attention and feed_forward for each kind of layer: the first layers of a kind may have one pair
/// and the rest another. Layouts are taken in the order of a bound of their seconds: first the
/// passes of their layers and what no layout hides of the rest, then a draft
/// (plan/cost/min_needs.h); the one with the least is planned. At most 200 are planned and 2000
/// drafted. Then one with another number of ranks is looked for a while longer, to be compared.
///
/// Without cluster.device prices are those of a device that is the same on every host: warning
/// "search-default-device". Error "search-space-empty" where no layout fits. nullopt also where
/// what is given does not fit together: "search-operator", or a rule that any configuration must
/// keep. Where rules refuse all layouts, the answer is one of these, and they will be reported.
std::optional<SearchReport> search_by_seconds(const SearchInput& input, Check& check);

}  // namespace trainctl
