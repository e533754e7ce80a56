// recursive_programming: each round cuts every matrix product of a stage once, or not at all
// (MindSpore 2.10, search_mode recursive_programming; costs are in docs/auto-parallel.md).
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

/// Number of parts of each of the three extents of a product.
struct ProductParts {
  std::int64_t i = 1, k = 1, j = 1;
  friend bool operator==(const ProductParts&, const ProductParts&) = default;
};

/// Text of the form "(i,k,j)".
std::string parts_text(const ProductParts& parts);

/// The costs that a round compared for a product. A fixed product has none; it takes the next of
/// its given cuts.
struct CutChoice {
  ProductCut taken = ProductCut::none;
  std::array<std::optional<double>, 4>
      costs{};  // cost in elements, by ProductCut; unset if impossible
};

struct RecursiveInput {
  const SearchNet& net;
  std::int64_t ranks = 1;        // number of ranks of the stage
  std::int64_t max_i_parts = 0;  // limit of the parts of i; no limit if 0
  // One entry per product. A product with given parts counts as visited from the start of each
  // round. Empty if no product is fixed.
  std::vector<std::optional<ProductParts>> fixed{};
};

struct RecursiveAnswer {
  std::vector<int> factors;  // prime factor of `ranks` for each round, the largest first
  std::vector<std::vector<CutChoice>> rounds;  // costs and choice, [round][product]
  std::vector<ProductParts> parts;             // parts of each product
};

RecursiveAnswer cut_recursively(const RecursiveInput& input);

/// The prime factors of `count`, the largest first.
std::vector<int> prime_factors(std::int64_t count);

}  // namespace trainctl
