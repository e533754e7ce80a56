#include "plan/search/words.h"

#include <algorithm>

#include "base/at.h"

namespace trainctl {

namespace {

/// The number of weight elements for each split, in the order of first occurrence.
struct Votes {
  std::vector<std::pair<SplitBy, std::int64_t>> elements;

  void add(SplitBy word, std::int64_t count) {
    for (auto& [known, sum] : elements) {
      if (known == word) {
        sum += count;
        return;
      }
    }
    elements.emplace_back(word, count);
  }
  SplitBy most() const {
    return std::ranges::max_element(elements, {}, [](const auto& one) { return one.second; })
        ->first;
  }
};

bool same_operator(const SearchProduct& a, const SearchProduct& b) {
  return a.of == b.of && a.layer == b.layer;
}

}  // namespace

Extents parts_of_word(SplitBy word, const SearchProduct& product, std::int64_t ranks,
                      std::int64_t tensor_parallel) {
  if (word == SplitBy::tokens) return {.i = ranks};
  Extents parts{.i = ranks / tensor_parallel};
  if (word == SplitBy::features) (product.sums ? parts.k : parts.j) = tensor_parallel;
  return parts;
}

std::int64_t max_weight_parts(const std::vector<Extents>& parts) {
  std::int64_t most = 1;
  for (const Extents& one : parts) most = std::max(most, one.j * one.k);
  return most;
}

SplitBy word_of_parts(const Extents& parts, std::int64_t ranks, std::int64_t data_parallel) {
  if (parts.j * parts.k > 1) return SplitBy::features;
  if (parts.i == ranks) return SplitBy::tokens;
  return parts.i == data_parallel || parts.i == 1 ? SplitBy::whole : SplitBy::tokens;
}

void add_words(const SearchNet& net, const std::vector<Extents>& parts, std::int64_t ranks,
               std::int64_t data_parallel, SearchedSplits& splits) {
  const std::vector<SearchProduct>& products = net.products;
  for (std::size_t first = 0; first < products.size();) {
    const SearchProduct& begin = products[first];
    Votes votes;
    std::size_t product = first;
    for (; product < products.size() && same_operator(products[product], begin); ++product) {
      const Extents& extents = products[product].extents;
      votes.add(word_of_parts(parts[product], ranks, data_parallel), extents.j * extents.k);
    }
    first = product;
    auto& word = splits.of(begin.of, begin.layer);
    if (!word) word = votes.most();
  }
}

}  // namespace trainctl
