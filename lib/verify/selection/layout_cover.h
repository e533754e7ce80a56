// A set of combinations of settings that contains every pair of settings: few instead of thousands.
// Pure; independent of the meaning of the settings.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace trainctl {

/// Combinations that share their first setting: for each further setting the words to choose from,
/// at least one each.
struct ChoiceSet {
  std::string name;
  std::vector<std::vector<std::string>> words;
};

/// How many combinations a set has: the product of its lists' sizes.
std::size_t count_of(const ChoiceSet& set);

struct Combination {
  std::size_t set = 0;
  std::vector<std::string> words;  // one for each of the set's lists
  auto operator<=>(const Combination&) const = default;
};

/// Every combination, the first words first.
std::vector<Combination> all_combinations(const std::vector<ChoiceSet>& sets);

/// Two settings for which no legal combination was found.
struct ForbiddenPair {
  std::string first;   // of a choice set's name or its words
  std::string second;  // a word
  Combination tried;   // the simplest combination with both
};

struct PairCover {
  std::vector<Combination> chosen;  // in the order of all_combinations
  std::vector<ForbiddenPair> forbidden;
};

/// Legal combinations with every pair of (set, word) and (word, word of another list) that a legal
/// combination has; of a pair's combinations at most `max_tries` of each set are tried. Greedy, so
/// not the fewest.
PairCover cover_pairs(const std::vector<ChoiceSet>& sets,
                      const std::function<bool(const Combination&)>& is_legal,
                      std::size_t max_tries = 64);

}  // namespace trainctl
