// Combinations of settings that between them have every pair of settings: few where all would be
// thousands. Pure; knows nothing of what the settings mean.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace trainctl {

/// Combinations that share their first setting: for each further one the words to choose from, at
/// least one each.
struct ChoiceSet {
  std::string name;
  std::vector<std::vector<std::string>> words;
};

struct Combination {
  std::size_t family = 0;
  std::vector<std::string> words;  // one for each of the family's lists
  auto operator<=>(const Combination&) const = default;
};

/// Every combination, the first words first.
std::vector<Combination> all_combinations(const std::vector<ChoiceSet>& families);

/// Legal combinations with every pair of (family, word) and (word, word of another list) that a
/// legal combination has; of a pair's combinations at most `most_tries` of each family are tried.
/// Greedy, so not the fewest. The order is that of all_combinations.
std::vector<Combination> cover_pairs(const std::vector<ChoiceSet>& families,
                                     const std::function<bool(const Combination&)>& is_legal,
                                     std::size_t most_tries = 64);

}  // namespace trainctl
