// recursive_programming: each round cuts every matrix product of a stage once, or not at all
// (MindSpore 2.10, search_mode recursive_programming; docs/auto-parallel.md has the costs).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/search/net.h"

namespace trainctl {

enum class ProductCut : std::uint8_t { i, j, k, none };
inline constexpr std::array all_cuts{ProductCut::i, ProductCut::j, ProductCut::k, ProductCut::none};

/// ProductParts of the three extents of a product.
struct ProductParts {
  std::int64_t i = 1, k = 1, j = 1;
  friend bool operator==(const ProductParts&, const ProductParts&) = default;
};

/// As "(i,k,j)".
std::string parts_text(const ProductParts& parts);

/// The costs that a round weighed for a product. A fixed product has no costs: it takes the rest of
/// its parts.
struct CutChoice {
  ProductCut taken = ProductCut::none;
  std::array<std::optional<double>, 4>
      costs{};  // in elements, by ProductCut; none: that cut is not possible
};

struct RecursiveInput {
  const SearchNet& net;
  std::int64_t ranks = 1;        // of the stage
  std::int64_t max_i_parts = 0;  // cut i only below this many parts; 0: no such limit
  // By product: its parts are given, and it counts as visited from the start of each round. Empty:
  // none is.
  std::vector<std::optional<ProductParts>> fixed{};
};

struct RecursiveAnswer {
  std::vector<int> factors;  // of the rounds: the prime factors of `ranks`, the largest first
  std::vector<std::vector<CutChoice>> rounds;  // [round][product]
  std::vector<ProductParts> parts;             // [product]
};

RecursiveAnswer cut_recursively(const RecursiveInput& input);

/// The prime factors of `count`, the largest first.
std::vector<int> prime_factors(std::int64_t count);

}  // namespace trainctl
