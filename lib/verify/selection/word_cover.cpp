#include "verify/selection/word_cover.h"

#include <algorithm>
#include <map>
#include <set>

namespace trainctl {

namespace {

using WordPair = std::pair<std::string, std::string>;

bool has_word(const WordRow& row, const std::string& word) {
  return std::find(row.begin(), row.end(), word) != row.end();
}

/// The words and the pairs of words that are in no row yet, of rows that are taken one by one.
class NewWords {
 public:
  /// How many of each the row would add.
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

/// Takes pairs of rows of two lists until each pair of their words is there.
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

  /// The rows of the second list: those taken least first, then those that add most pairs.
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

  /// How many pairs of words that are to meet have not met before.
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
    // Among rows that add the same number of pairs, the row that was taken least comes first.
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

  static constexpr std::size_t max_pairs_ = 1'000'000;  // of two rows
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
