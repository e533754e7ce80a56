// A set of combinations of settings that contains every pair of settings: few instead of thousands.
// Pure; independent of the meaning of the settings.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
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

// Rows as sets of words: few that have all words, pairs of rows with each pair of their words, and
// what the rows of one kind have in common. Pure; independent of what the words mean.

using WordRow = std::vector<std::string>;

/// At most `most` rows, in their order: each adds more words than any other, then more pairs of
/// words.
std::vector<std::size_t> few_with_most_words(const std::vector<WordRow>& rows, std::size_t most);

/// A pair of rows of two lists that can be combined, as places in both.
using RowPair = std::pair<std::size_t, std::size_t>;

/// For each row of `first` one of `second` that it can be with, if there is one: all rows of
/// `second` are used one after the other, beginning with the row that adds most pairs of a word of
/// one and a word of the other. Then more rows, so that each `met` word of `first` meets each of
/// `second`: among the rows that have both words, `max_tries` that add most such pairs. In the
/// order of `second`.
std::vector<RowPair> paired_rows(const std::vector<WordRow>& first,
                                 const std::vector<WordRow>& second,
                                 const std::function<bool(const RowPair&)>& can_be,
                                 const std::function<bool(const std::string&)>& met,
                                 std::size_t max_tries = 16);

/// The words that all of `with` and none of `without` have, in the order of the first.
WordRow common_words(const std::vector<WordRow>& with, const std::vector<WordRow>& without);

/// The words of which some may be why `with` is not `without`: common_words; where there are none,
/// all that `with` has in common, if no row of `without` has them all.
WordRow suspect_words(const std::vector<WordRow>& with, const std::vector<WordRow>& without);

/// The words that all of `with` have, and of those as few as no row of `without` has together: the
/// first are left out first. Empty: some row of `without` has all of them.
WordRow common_together(const std::vector<WordRow>& with, const std::vector<WordRow>& without);

}  // namespace trainctl
