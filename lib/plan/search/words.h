// Converts cuts of products to one split for each operator of each layer (docs/auto-parallel.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/search/given.h"
#include "plan/search/recursive.h"

namespace trainctl {

/// The parts of a product with this split over `ranks` ranks in groups of `tensor_parallel`.
Extents parts_of_word(SplitBy word, const SearchProduct& product, std::int64_t ranks,
                      std::int64_t tensor_parallel);

/// The number of ranks that share weights: the largest product of the parts of j and k.
std::int64_t max_weight_parts(const std::vector<Extents>& parts);

/// The split that corresponds to `parts`: features if j or k has parts; else tokens if i has
/// `ranks` parts; whole if i has `data_parallel` parts or one; tokens otherwise.
SplitBy word_of_parts(const Extents& parts, std::int64_t ranks, std::int64_t data_parallel);

/// Sets the split of each operator of `net` that has none. The products of an operator vote with
/// their weight elements for their splits; among equals, the split of the first product wins.
void add_words(const SearchNet& net, const std::vector<Extents>& parts, std::int64_t ranks,
               std::int64_t data_parallel, SearchedSplits& splits);

}  // namespace trainctl
