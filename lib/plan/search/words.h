// From the cuts of products to one word for each operator of each layer (docs/auto-parallel.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/search/given.h"
#include "plan/search/recursive.h"

namespace trainctl {

/// The parts that a word gives a product over `ranks` ranks, `tensor_parallel` in a group.
ProductParts parts_of_word(SplitBy word, const SearchProduct& product, std::int64_t ranks,
                           std::int64_t tensor_parallel);

/// The ranks that share weights: the largest product of the cuts of j and k.
std::int64_t max_weight_parts(const std::vector<ProductParts>& parts);

/// A cut of j or k is by features; else `ranks` parts of i are by tokens, those of the
/// data-parallel ranks, or one, are whole, and any other number is by tokens.
SplitBy word_of_parts(const ProductParts& parts, std::int64_t ranks, std::int64_t data_parallel);

/// Sets the word of each operator of `net` that has none: the word with the most elements of
/// weights among the operator's products; of equals that of the first product.
void add_words(const SearchNet& net, const std::vector<ProductParts>& parts, std::int64_t ranks,
               std::int64_t data_parallel, SearchedSplits& splits);

}  // namespace trainctl
