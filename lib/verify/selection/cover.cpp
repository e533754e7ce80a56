#include "verify/selection/cover.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace trainctl {

std::size_t count_of(const ChoiceSet& set) {
  return std::accumulate(set.words.begin(), set.words.end(), std::size_t{1},
                         [](std::size_t count, const auto& words) { return count * words.size(); });
}

namespace {

/// A combination as indices: of its set, then of each word in its list.
using Row = std::vector<int>;
constexpr int open_place = -1;

/// Row number `index` of a set; the words of the last list change fastest.
Row row_at(const std::vector<ChoiceSet>& sets, std::size_t set, std::size_t index) {
  const auto& lists = sets[set].words;
  Row row(lists.size() + 1, static_cast<int>(set));
  for (std::size_t list = lists.size(); list-- > 0;) {
    row[list + 1] = static_cast<int>(index % lists[list].size());
    index /= lists[list].size();
  }
  return row;
}

Combination combination_of(const std::vector<ChoiceSet>& sets, const Row& row) {
  Combination made{.set = static_cast<std::size_t>(row[0]), .words = {}};
  for (std::size_t list = 0; list + 1 < row.size(); ++list) {
    const auto place = static_cast<std::size_t>(row[list + 1]);
    made.words.push_back(sets[made.set].words[list][place]);
  }
  return made;
}

class Cover {
 public:
  Cover(const std::vector<ChoiceSet>& sets, const std::function<bool(const Combination&)>& is_legal,
        std::size_t max_tries)
      : sets_(sets), is_legal_(is_legal), max_tries_(max_tries) {
    std::map<std::pair<std::size_t, std::string>, int> numbers;
    for (const ChoiceSet& set : sets) {
      auto& lists = numbers_.emplace_back();
      const auto own = static_cast<int>(numbers_.size() - 1);
      lists.push_back(std::vector<int>(sets.size(), own));
      for (std::size_t list = 0; list < set.words.size(); ++list) {
        lists.emplace_back();
        for (const std::string& word : set.words[list]) {
          const auto next = static_cast<int>(sets.size() + numbers.size());
          lists.back().push_back(numbers.try_emplace({list, word}, next).first->second);
        }
      }
    }
    for (std::size_t set = 0; set < sets.size(); ++set) open_pairs_of(set);
  }

  PairCover find() {
    PairCover found;
    std::set<Row> chosen;
    while (!open_.empty()) {
      const Pair wanted = *open_.begin();
      open_.erase(wanted);
      const auto row = row_with(wanted);
      if (!row) {
        found.forbidden.push_back(forbidden(wanted));
        continue;
      }
      for (std::size_t a = 0; a < row->size(); ++a) {
        for (std::size_t b = a + 1; b < row->size(); ++b) {
          open_.erase(pair_of(number(*row, a), number(*row, b)));
        }
      }
      chosen.insert(*row);
    }
    for (const Row& row : chosen) found.chosen.push_back(combination_of(sets_, row));
    return found;
  }

 private:
  using Pair = std::pair<int, int>;  // numbers of two words, the smaller first
  static Pair pair_of(int a, int b) { return std::minmax(a, b); }

  const std::vector<std::vector<int>>& lists_of(const Row& row) const {
    return numbers_[static_cast<std::size_t>(row[0])];
  }
  int number(const Row& row, std::size_t list) const {
    return lists_of(row)[list][static_cast<std::size_t>(row[list])];
  }

  void open_pairs_of(std::size_t set) {
    const auto& lists = numbers_[set];
    for (std::size_t a = 1; a < lists.size(); ++a) {
      for (const int one : lists[a]) {
        open_.insert(pair_of(static_cast<int>(set), one));
        for (std::size_t b = a + 1; b < lists.size(); ++b) {
          for (const int other : lists[b]) open_.insert(pair_of(one, other));
        }
      }
    }
  }

  /// A row of `set` with the pair `wanted` and all other places open; nullopt if it lacks the pair.
  std::optional<Row> started(std::size_t set, const Pair& wanted) const {
    const auto& lists = numbers_[set];
    Row row(lists.size(), open_place);
    row[0] = static_cast<int>(set);
    int found = wanted.first == row[0] ? 1 : 0;
    for (std::size_t list = 1; list < lists.size(); ++list) {
      for (const int number : {wanted.first, wanted.second}) {
        const auto at = std::find(lists[list].begin(), lists[list].end(), number);
        if (at == lists[list].end()) continue;
        row[list] = static_cast<int>(at - lists[list].begin());
        ++found;
      }
    }
    if (found < 2) return std::nullopt;
    return row;
  }

  /// The number of new pairs that word `added` would form with the words in the row.
  int gain(const Row& row, int added) const {
    int count = 0;
    for (std::size_t list = 0; list < row.size(); ++list) {
      if (row[list] == open_place) continue;
      count += open_.contains(pair_of(number(row, list), added)) ? 1 : 0;
    }
    return count;
  }

  /// Fills open places with the words that add most pairs. Returns the number of pairs added.
  int complete(Row& row) const {
    const auto& lists = lists_of(row);
    int total = 0;
    for (std::size_t list = 1; list < lists.size(); ++list) {
      if (row[list] != open_place) continue;
      int most = -1;
      int best = 0;
      for (std::size_t place = 0; place < lists[list].size(); ++place) {
        const int gained = gain(row, lists[list][place]);
        if (gained > most) best = static_cast<int>(place);
        most = std::max(most, gained);
      }
      row[list] = best;
      total += most;
    }
    return total;
  }

  /// A legal row with the pair `wanted` and with many other open pairs.
  std::optional<Row> row_with(const Pair& wanted) const {
    std::vector<std::pair<int, Row>> rows;  // sorted: most added pairs first
    for (std::size_t set = 0; set < sets_.size(); ++set) {
      auto row = started(set, wanted);
      if (!row) continue;
      const int gained = complete(*row);
      rows.emplace_back(-gained, *row);
    }
    std::sort(rows.begin(), rows.end());
    for (const auto& [gained, row] : rows) {
      if (is_legal(row)) return row;
    }
    for (const auto& [gained, row] : rows) {
      const auto other = any_with(static_cast<std::size_t>(row[0]), wanted);
      if (other) return other;
    }
    return std::nullopt;
  }

  /// The number of open pairs in a row.
  int pairs_in(const Row& row) const {
    int count = 0;
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) {
        count += open_.contains(pair_of(number(row, a), number(row, b))) ? 1 : 0;
      }
    }
    return count;
  }

  /// Tries at most max_tries_ of the set's rows with the pair, spread evenly over all of these.
  /// Returns the legal row that adds most pairs.
  std::optional<Row> any_with(std::size_t set, const Pair& wanted) const {
    const Row fixed = *started(set, wanted);
    std::vector<ChoiceSet> narrowed(set + 1, sets_[set]);
    for (std::size_t list = 1; list < fixed.size(); ++list) {
      if (fixed[list] != open_place) narrowed[set].words[list - 1].resize(1);
    }
    const std::size_t count = count_of(narrowed[set]);
    const std::size_t stride = std::max<std::size_t>(1, count / max_tries_);
    std::vector<std::pair<int, Row>> rows;  // sorted: most added pairs first
    for (std::size_t index = 0; index < count; index += stride) {
      Row row = row_at(narrowed, set, index);
      for (std::size_t list = 1; list < fixed.size(); ++list) {
        if (fixed[list] != open_place) row[list] = fixed[list];
      }
      rows.emplace_back(-pairs_in(row), row);
    }
    std::sort(rows.begin(), rows.end());
    for (const auto& [gained, row] : rows) {
      if (is_legal(row)) return row;
    }
    return std::nullopt;
  }

  /// Reports a pair together with its simplest row, which has the first word at each open place.
  ForbiddenPair forbidden(const Pair& pair) const {
    std::optional<Row> row;
    for (std::size_t set = 0; set < sets_.size() && !row; ++set) row = started(set, pair);
    const Row found = *row;
    std::replace(row->begin(), row->end(), open_place, 0);
    ForbiddenPair made{.first = {}, .second = {}, .tried = combination_of(sets_, *row)};
    if (pair.first == found[0]) made.first = sets_[made.tried.set].name;
    for (std::size_t list = 1; list < found.size(); ++list) {
      if (found[list] == open_place) continue;
      (made.first.empty() ? made.first : made.second) = made.tried.words[list - 1];
    }
    return made;
  }

  bool is_legal(const Row& row) const { return is_legal_(combination_of(sets_, row)); }

  const std::vector<ChoiceSet>& sets_;
  const std::function<bool(const Combination&)>& is_legal_;
  std::size_t max_tries_;
  /// By set and list, the numbers of the words. List 0 has the number of the set itself.
  std::vector<std::vector<std::vector<int>>> numbers_;
  std::set<Pair> open_;  // pairs that no chosen row has yet
};

}  // namespace

std::vector<Combination> all_combinations(const std::vector<ChoiceSet>& sets) {
  std::vector<Combination> all;
  for (std::size_t set = 0; set < sets.size(); ++set) {
    const std::size_t count = count_of(sets[set]);
    for (std::size_t index = 0; index < count; ++index) {
      all.push_back(combination_of(sets, row_at(sets, set, index)));
    }
  }
  return all;
}

PairCover cover_pairs(const std::vector<ChoiceSet>& sets,
                      const std::function<bool(const Combination&)>& is_legal,
                      std::size_t max_tries) {
  return Cover(sets, is_legal, max_tries).find();
}

namespace {

using WordPair = std::pair<std::string, std::string>;

bool has_word(const WordRow& row, const std::string& word) {
  return std::find(row.begin(), row.end(), word) != row.end();
}

/// Words and pairs of words of the rows taken so far, to count what another row would add.
class NewWords {
 public:
  /// The numbers of words and of pairs that the row would add.
  std::pair<std::size_t, std::size_t> in(const WordRow& row) const {
    std::pair<std::size_t, std::size_t> count;
    for (std::size_t a = 0; a < row.size(); ++a) {
      count.first += words_.contains(row[a]) ? 0 : 1;
      for (std::size_t b = a + 1; b < row.size(); ++b) {
        count.second += pairs_.contains(std::minmax(row[a], row[b])) ? 0 : 1;
      }
    }
    return count;
  }
  void take(const WordRow& row) {
    words_.insert(row.begin(), row.end());
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) {
        pairs_.insert(std::minmax(row[a], row[b]));
      }
    }
  }

 private:
  std::set<std::string> words_;
  std::set<WordPair> pairs_;
};

/// Takes pairs of rows from two lists until each possible pair of their words has occurred.
class RowPairs {
 public:
  RowPairs(const std::vector<WordRow>& first, const std::vector<WordRow>& second,
           const std::function<bool(const RowPair&)>& can_be)
      : first_(first), second_(second), can_be_(can_be), uses_(second.size(), 0) {}

  void take_each() {
    for (std::size_t row = 0; row < first_.size(); ++row) {
      for (const std::size_t other : best_for(row)) {
        if (!can_be_({row, other})) continue;
        take({row, other});
        break;
      }
    }
  }

  void take_missing(const std::function<bool(const std::string&)>& met, std::size_t max_tries) {
    auto wanted = rows_with(first_);
    std::erase_if(wanted, [&](const auto& one) { return !met(one.first); });
    for (const auto& [word, rows] : wanted) met_.insert(word);
    for (const auto& [word, rows] : wanted) {
      for (const auto& [other, others] : rows_with(second_)) {
        if (!seen_.contains({word, other})) look_for(rows, others, max_tries);
      }
    }
  }

  std::vector<RowPair> taken() && {
    std::sort(taken_.begin(), taken_.end(), [](const RowPair& a, const RowPair& b) {
      return std::pair(a.second, a.first) < std::pair(b.second, b.first);
    });
    return std::move(taken_);
  }

 private:
  static std::map<std::string, std::vector<std::size_t>> rows_with(
      const std::vector<WordRow>& rows) {
    std::map<std::string, std::vector<std::size_t>> found;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      for (const std::string& word : rows[row]) found[word].push_back(row);
    }
    return found;
  }

  /// The second list's rows: least used first, among these those with most new pairs of words.
  std::vector<std::size_t> best_for(std::size_t row) const {
    std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> order;
    for (std::size_t other = 0; other < second_.size(); ++other) {
      std::size_t known = 0;
      for (const std::string& a : first_[row]) {
        for (const std::string& b : second_[other]) known += seen_.contains({a, b}) ? 1 : 0;
      }
      const std::size_t pairs = first_[row].size() * second_[other].size();
      order.emplace_back(uses_[other], known + max_pairs_ - pairs, other);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> rows;
    for (const auto& one : order) rows.push_back(std::get<2>(one));
    return rows;
  }

  /// The number of new pairs of words in `pair` whose first word is one that must meet all others.
  std::size_t gain(const RowPair& pair) const {
    std::size_t count = 0;
    for (const std::string& a : first_[pair.first]) {
      if (!met_.contains(a)) continue;
      for (const std::string& b : second_[pair.second]) count += seen_.contains({a, b}) ? 0 : 1;
    }
    return count;
  }

  void look_for(const std::vector<std::size_t>& rows, const std::vector<std::size_t>& others,
                std::size_t tries) {
    std::vector<RowPair> pairs;
    for (const std::size_t row : rows) {
      for (const std::size_t other : others) pairs.emplace_back(row, other);
    }
    // Among pairs that add equally many pairs of words, rows taken least often come first.
    std::ranges::stable_sort(pairs, std::greater<>(), [this](const RowPair& pair) {
      return std::pair(gain(pair), -std::ranges::count(taken_, pair.first, &RowPair::first));
    });
    for (const RowPair& pair : pairs) {
      if (tries-- == 0) return;
      if (!can_be_(pair)) continue;
      take(pair);
      return;
    }
  }

  void take(const RowPair& pair) {
    taken_.push_back(pair);
    ++uses_[pair.second];
    for (const std::string& a : first_[pair.first]) {
      for (const std::string& b : second_[pair.second]) seen_.insert({a, b});
    }
  }

  static constexpr std::size_t max_pairs_ = 1'000'000;  // limit for two rows
  const std::vector<WordRow>& first_;
  const std::vector<WordRow>& second_;
  const std::function<bool(const RowPair&)>& can_be_;
  std::vector<std::size_t> uses_;
  std::set<WordPair> seen_;
  std::set<std::string> met_;
  std::vector<RowPair> taken_;
};

}  // namespace

std::vector<std::size_t> few_with_most_words(const std::vector<WordRow>& rows, std::size_t most) {
  NewWords found;
  std::set<std::size_t> taken;
  while (taken.size() < std::min(most, rows.size())) {
    std::size_t best = rows.size();
    std::pair<std::size_t, std::size_t> gain;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (taken.contains(row)) continue;
      const auto added = found.in(rows[row]);
      if (best < rows.size() && added <= gain) continue;
      best = row;
      gain = added;
    }
    found.take(rows[best]);
    taken.insert(best);
  }
  return {taken.begin(), taken.end()};
}

std::vector<RowPair> paired_rows(const std::vector<WordRow>& first,
                                 const std::vector<WordRow>& second,
                                 const std::function<bool(const RowPair&)>& can_be,
                                 const std::function<bool(const std::string&)>& met,
                                 std::size_t max_tries) {
  RowPairs pairs(first, second, can_be);
  pairs.take_each();
  pairs.take_missing(met, max_tries);
  return std::move(pairs).taken();
}

WordRow common_words(const std::vector<WordRow>& with, const std::vector<WordRow>& without) {
  WordRow common;
  if (with.empty()) return common;
  const auto is_in = [](const std::string& word) {
    return [&word](const WordRow& row) { return has_word(row, word); };
  };
  for (const std::string& word : with.front()) {
    const bool all = std::all_of(with.begin(), with.end(), is_in(word));
    if (all && std::none_of(without.begin(), without.end(), is_in(word))) common.push_back(word);
  }
  return common;
}

WordRow suspect_words(const std::vector<WordRow>& with, const std::vector<WordRow>& without) {
  const WordRow apart = common_words(with, without);
  if (!apart.empty()) return apart;
  return common_together(with, without).empty() ? WordRow{} : common_words(with, {});
}

WordRow common_together(const std::vector<WordRow>& with, const std::vector<WordRow>& without) {
  const auto is_apart = [&](const WordRow& words) {
    return std::none_of(without.begin(), without.end(), [&](const WordRow& row) {
      return std::all_of(words.begin(), words.end(),
                         [&](const std::string& word) { return has_word(row, word); });
    });
  };
  const WordRow common = common_words(with, {});
  if (!is_apart(common)) return {};
  WordRow left = common;
  for (const std::string& word : common) {
    WordRow fewer = left;
    std::erase(fewer, word);
    if (is_apart(fewer)) left = std::move(fewer);
  }
  return left;
}

}  // namespace trainctl
