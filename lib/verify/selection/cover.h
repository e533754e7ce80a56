// Few combinations of settings that together contain every pair of settings, instead of thousands.
// Pure; independent of the meaning of the settings.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace trainctl {

/// Combinations with the same first setting, `name`. Each of the lists has the words for one
/// further setting, at least one.
struct ChoiceSet {
  std::string name;
  std::vector<std::vector<std::string>> words;
};

/// The number of combinations in a set: the product of its lists' sizes.
std::size_t count_of(const ChoiceSet& set);

struct Combination {
  std::size_t set = 0;
  std::vector<std::string> words;  // one for each of the set's lists
  auto operator<=>(const Combination&) const = default;
};

/// Every combination; those with the first words come first.
std::vector<Combination> all_combinations(const std::vector<ChoiceSet>& sets);

/// Two settings for which no legal combination was found.
struct ForbiddenPair {
  std::string first;   // name of a choice set, or a word
  std::string second;  // a word
  Combination tried;   // the simplest combination with both
};

struct PairCover {
  std::vector<Combination> chosen;  // in the order of all_combinations
  std::vector<ForbiddenPair> forbidden;
};

/// Legal combinations that contain every pair of (set, word) and (word, word of another list) that
/// occurs in a legal combination. For each pair, at most `max_tries` combinations of each set are
/// tried. Greedy, so not the minimum.
PairCover cover_pairs(const std::vector<ChoiceSet>& sets,
                      const std::function<bool(const Combination&)>& is_legal,
                      std::size_t max_tries = 64);

// Finds, in rows that are sets of words: few rows with all words, pairs of rows with each pair of
// words, and words common to rows of one kind. Pure; independent of the meaning of words.

using WordRow = std::vector<std::string>;

/// Greedily selects at most `most` rows: each adds more new words, then more new pairs of words,
/// than any other. Returns their indices in order.
std::vector<std::size_t> few_with_most_words(const std::vector<WordRow>& rows, std::size_t most);

/// A pair of rows from two lists, as indices.
using RowPair = std::pair<std::size_t, std::size_t>;

/// Pairs each row of `first` with a row of `second` for which can_be() holds, if any: least used
/// rows first, then rows with most new pairs of words. Then adds pairs so that each word of `first`
/// with `met` occurs with each word of `second`; of the rows with both words, the `max_tries` that
/// add most pairs are tried. Sorted by the row of `second`.
std::vector<RowPair> paired_rows(const std::vector<WordRow>& first,
                                 const std::vector<WordRow>& second,
                                 const std::function<bool(const RowPair&)>& can_be,
                                 const std::function<bool(const std::string&)>& met,
                                 std::size_t max_tries = 16);

/// The words that all rows of `with` and no row of `without` have, in the order of the first row.
WordRow common_words(const std::vector<WordRow>& with, const std::vector<WordRow>& without);

/// Words that may explain the difference between `with` and `without`: common_words or, if there
/// are none, all words common to `with`, unless a row of `without` has them all too.
WordRow suspect_words(const std::vector<WordRow>& with, const std::vector<WordRow>& without);

/// A small set of words that all rows of `with` have but no row of `without` has in full; drops
/// earlier words first. Empty if a row of `without` has all common words.
WordRow common_together(const std::vector<WordRow>& with, const std::vector<WordRow>& without);

}  // namespace trainctl
