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

using ProductCut = OneOf<"i|j|k|none">;
inline constexpr std::array all_cuts{ProductCut("i"), ProductCut("j"), ProductCut("k"),
                                     ProductCut("none")};

/// Text of the form "(i,k,j)".
std::string parts_text(const Extents& parts);

/// The costs that a round compared for a product. A fixed product has none; it takes the next of
/// its given cuts.
struct CutChoice {
  ProductCut taken = "none";
  std::array<std::optional<double>, 4>
      costs{};  // cost in elements, by ProductCut; unset if impossible
};

/// The rounds of recursive_programming for one stage.
struct StageSearch {
  SearchNet net;
  std::vector<int> factors{};  // prime factor of the ranks for each round, the largest first
  std::vector<std::vector<CutChoice>> rounds{};  // costs and choice, [round][product]
  std::vector<Extents> parts{};                  // parts of each product
  int stage = 0;
};

/// Cuts the products of `net` for the `ranks` ranks of its stage. `max_i_parts`: limit of the parts
/// of i; no limit if 0. `fixed`: given parts by product, or empty; a product with given parts
/// counts as visited from the start of each round.
StageSearch cut_recursively(SearchNet net, std::int64_t ranks, std::int64_t max_i_parts = 0,
                            const std::vector<std::optional<Extents>>& fixed = {});

/// The prime factors of `count`, the largest first.
std::vector<int> prime_factors(std::int64_t count);

}  // namespace trainctl
