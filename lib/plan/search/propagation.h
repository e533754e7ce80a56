// sharding_propagation: spreads the splits of configured operators to the others (MindSpore 2.10,
// search_mode sharding_propagation, as far as one split per operator can express it).
#pragma once

#include "plan/search/given.h"

namespace trainctl {

/// Gives each operator a split, in the order of the data: embedding, attention and feed_forward of
/// each layer, head. After a configured operator: tokens if the nearest configured one before it
/// has tokens, else features. Before all configured operators: tokens if the first configured one
/// has tokens, else whole. Layers with has_experts[layer] get no split for feed_forward. At least
/// one operator must be configured.
SearchedSplits propagate(const SearchedSplits& configured, const std::vector<bool>& has_experts);

}  // namespace trainctl
