#include "engine/layout_cover.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace trainctl {

namespace {

/// A combination as the family, then the place of each word in its list.
using Row = std::vector<int>;
constexpr int open_place = -1;

std::size_t count_of(const ChoiceSet& family) {
  return std::accumulate(family.words.begin(), family.words.end(), std::size_t{1},
                         [](std::size_t count, const auto& words) { return count * words.size(); });
}

/// Row `index` of a family, the last list's words changing fastest.
Row row_at(const std::vector<ChoiceSet>& families, std::size_t family, std::size_t index) {
  const auto& lists = families[family].words;
  Row row(lists.size() + 1, static_cast<int>(family));
  for (std::size_t list = lists.size(); list-- > 0;) {
    row[list + 1] = static_cast<int>(index % lists[list].size());
    index /= lists[list].size();
  }
  return row;
}

Combination combination_of(const std::vector<ChoiceSet>& families, const Row& row) {
  Combination made{.family = static_cast<std::size_t>(row[0]), .words = {}};
  for (std::size_t list = 0; list + 1 < row.size(); ++list) {
    const auto place = static_cast<std::size_t>(row[list + 1]);
    made.words.push_back(families[made.family].words[list][place]);
  }
  return made;
}

class PairCover {
 public:
  PairCover(const std::vector<ChoiceSet>& families,
            const std::function<bool(const Combination&)>& is_legal, std::size_t most_tries)
      : families_(families), is_legal_(is_legal), most_tries_(most_tries) {
    std::map<std::pair<std::size_t, std::string>, int> numbers;
    for (const ChoiceSet& family : families) {
      auto& lists = numbers_.emplace_back();
      const auto own = static_cast<int>(numbers_.size() - 1);
      lists.push_back(std::vector<int>(families.size(), own));
      for (std::size_t list = 0; list < family.words.size(); ++list) {
        lists.emplace_back();
        for (const std::string& word : family.words[list]) {
          const auto next = static_cast<int>(families.size() + numbers.size());
          lists.back().push_back(numbers.try_emplace({list, word}, next).first->second);
        }
      }
    }
    for (std::size_t family = 0; family < families.size(); ++family) open_pairs_of(family);
  }

  std::set<Row> cover() {
    std::set<Row> chosen;
    while (!open_.empty()) {
      const Pair wanted = *open_.begin();
      open_.erase(wanted);
      const auto row = row_with(wanted);
      if (!row) continue;
      for (std::size_t a = 0; a < row->size(); ++a) {
        for (std::size_t b = a + 1; b < row->size(); ++b) {
          open_.erase(pair_of(number(*row, a), number(*row, b)));
        }
      }
      chosen.insert(*row);
    }
    return chosen;
  }

 private:
  using Pair = std::pair<int, int>;  // of numbers, the smaller first
  static Pair pair_of(int a, int b) { return std::minmax(a, b); }

  const std::vector<std::vector<int>>& lists_of(const Row& row) const {
    return numbers_[static_cast<std::size_t>(row[0])];
  }
  int number(const Row& row, std::size_t list) const {
    return lists_of(row)[list][static_cast<std::size_t>(row[list])];
  }

  void open_pairs_of(std::size_t family) {
    const auto& lists = numbers_[family];
    for (std::size_t a = 1; a < lists.size(); ++a) {
      for (const int one : lists[a]) {
        open_.insert(pair_of(static_cast<int>(family), one));
        for (std::size_t b = a + 1; b < lists.size(); ++b) {
          for (const int other : lists[b]) open_.insert(pair_of(one, other));
        }
      }
    }
  }

  /// A family's row with `wanted` in it and all else open, or nothing if it has no such pair.
  std::optional<Row> started(std::size_t family, const Pair& wanted) const {
    const auto& lists = numbers_[family];
    Row row(lists.size(), open_place);
    row[0] = static_cast<int>(family);
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

  /// How many pairs a word would add to what the row has.
  int gain(const Row& row, int added) const {
    int count = 0;
    for (std::size_t list = 0; list < row.size(); ++list) {
      if (row[list] == open_place) continue;
      count += open_.contains(pair_of(number(row, list), added)) ? 1 : 0;
    }
    return count;
  }

  /// Fills what is open with the words that add most pairs; returns how many they add.
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

  /// A legal row with that pair and many others that are open.
  std::optional<Row> row_with(const Pair& wanted) const {
    std::vector<std::pair<int, Row>> rows;  // the least first: those that add most
    for (std::size_t family = 0; family < families_.size(); ++family) {
      auto row = started(family, wanted);
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

  /// Tries some of the family's rows with that pair, spread over all of them.
  std::optional<Row> any_with(std::size_t family, const Pair& wanted) const {
    const Row fixed = *started(family, wanted);
    std::vector<ChoiceSet> narrowed(family + 1, families_[family]);
    for (std::size_t list = 1; list < fixed.size(); ++list) {
      if (fixed[list] != open_place) narrowed[family].words[list - 1].resize(1);
    }
    const std::size_t count = count_of(narrowed[family]);
    const std::size_t stride = std::max<std::size_t>(1, count / most_tries_);
    for (std::size_t index = 0; index < count; index += stride) {
      Row row = row_at(narrowed, family, index);
      for (std::size_t list = 1; list < fixed.size(); ++list) {
        if (fixed[list] != open_place) row[list] = fixed[list];
      }
      if (is_legal(row)) return row;
    }
    return std::nullopt;
  }

  bool is_legal(const Row& row) const { return is_legal_(combination_of(families_, row)); }

  const std::vector<ChoiceSet>& families_;
  const std::function<bool(const Combination&)>& is_legal_;
  std::size_t most_tries_;
  /// By family and list: the numbers of its words; list 0 has the family's own, at its place.
  std::vector<std::vector<std::vector<int>>> numbers_;
  std::set<Pair> open_;  // in no chosen row yet
};

}  // namespace

std::vector<Combination> all_combinations(const std::vector<ChoiceSet>& families) {
  std::vector<Combination> all;
  for (std::size_t family = 0; family < families.size(); ++family) {
    const std::size_t count = count_of(families[family]);
    for (std::size_t index = 0; index < count; ++index) {
      all.push_back(combination_of(families, row_at(families, family, index)));
    }
  }
  return all;
}

std::vector<Combination> cover_pairs(const std::vector<ChoiceSet>& families,
                                     const std::function<bool(const Combination&)>& is_legal,
                                     std::size_t most_tries) {
  std::vector<Combination> chosen;
  for (const Row& row : PairCover(families, is_legal, most_tries).cover()) {
    chosen.push_back(combination_of(families, row));
  }
  return chosen;
}

}  // namespace trainctl
