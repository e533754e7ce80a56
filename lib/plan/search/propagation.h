// sharding_propagation: the splits of configured operators spread to the others (MindSpore 2.10,
// search_mode sharding_propagation, as far as one word for each operator can say it).
#pragma once

#include "plan/search/given.h"

namespace trainctl {

/// Gives each operator a word, in the order of the data: embedding, attention and feed_forward of
/// each layer, head. After a configured one: tokens if the nearest configured one before it has
/// tokens, else features. Before every configured one: tokens if the first configured one has
/// tokens, else whole. Layers for which `has_experts` is true keep no word for feed_forward. At
/// least one operator is configured.
SearchedSplits propagate(const SearchedSplits& configured, const std::vector<bool>& has_experts);

}  // namespace trainctl
