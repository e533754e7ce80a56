#include "verify/selection/option_selection.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "run/prepare.h"
#include "verify/alone.h"

namespace trainctl {

namespace {

/// A word that is tried: its key's place in the list, and its place among the key's words; of the
/// file's own value 0.
struct OptionWord {
  std::size_t key = 0;
  std::size_t place = 0;
  auto operator<=>(const OptionWord&) const = default;
};

std::string path_in(const std::string& setting) { return setting.substr(0, setting.find('=')); }

Diagnostic refusal_of(const std::string& code, const std::string& message) {
  Diagnostic made;
  made.code = code;
  made.message = message;
  return made;
}

/// The number of combinations among which words are dealt out where their pairs do not count. A
/// word among few others shows its effect together with the file's own values.
constexpr std::size_t few_combinations = 10;

class OptionCover {
 public:
  OptionCover(const ReadWith& read, bool pairs)
      : read_(read), file_(read({}).config), pairs_(pairs) {
    const bool dense = file_.moe.num_experts == 1;
    std::size_t count = 0;
    for (const OptionKey& key : option_keys()) {
      auto& words = words_.emplace_back();
      words.emplace_back();  // the file's value
      if (dense && key.path.starts_with("moe.")) continue;
      for (Settings& settings : option_words(key, file_)) {
        if (read(settings).config != file_) words.push_back(std::move(settings));
      }
      count += words.size() - 1;
    }
    max_words_ = pairs_ ? count : (count + few_combinations - 1) / few_combinations;
  }

  OptionSelection select() {
    for (std::size_t key = 0; key < words_.size(); ++key) {
      for (std::size_t place = 1; place < words_[key].size(); ++place) open({key, place});
    }
    const std::vector<Wanted> all(open_.begin(), open_.end());
    for (const Wanted& wanted : all) {
      // A word that needs another one stays open, for combinations with that.
      const bool is_word = wanted.first == wanted.second;
      if (!open_.contains(wanted) || take_with(words_in(wanted)) || is_word) continue;
      open_.erase(wanted);
    }
    for (const Wanted& wanted : all) {
      const bool is_word = wanted.first == wanted.second;
      if (is_word && open_.contains(wanted)) take_with_another(wanted.first);
    }
    name_forbidden();
    return std::move(selection_);
  }

 private:
  using Wanted = std::pair<OptionWord, OptionWord>;  // the same one twice: a word with anything

  void open(const OptionWord& word) {
    open_.insert({word, word});
    if (!pairs_) return;
    for (std::size_t key = 0; key < words_.size(); ++key) {
      if (key == word.key) continue;
      for (std::size_t place = 0; place < words_[key].size(); ++place) {
        if (words_[key].size() > 1) open_.insert(std::minmax(word, OptionWord{key, place}));
      }
    }
  }

  static std::vector<OptionWord> words_in(const Wanted& wanted) {
    if (wanted.first == wanted.second) return {wanted.first};
    return {wanted.first, wanted.second};
  }

  /// A combination with these words and many others that are open, if they can be together.
  bool take_with(std::vector<OptionWord> row) {
    if (refusal(row)) return false;
    complete(row);
    take(row);
    return true;
  }

  /// With the first other word that it needs, if no combination so far has it.
  void take_with_another(const OptionWord& word) {
    for (std::size_t key = 0; key < words_.size() && !taken_.contains(word); ++key) {
      if (key == word.key) continue;
      for (std::size_t place = 1; place < words_[key].size(); ++place) {
        if (take_with({word, {key, place}})) return;
      }
    }
  }

  /// How many open words and pairs a word would add to the row.
  std::size_t gain(const std::vector<OptionWord>& row, const OptionWord& added) const {
    std::size_t count = open_.contains({added, added}) ? row.size() + 1 : 0;
    for (const OptionWord& word : row) count += open_.contains(std::minmax(word, added)) ? 1 : 0;
    return count;
  }

  /// Adds, for each other key, the word that adds most, as far as a single rank can run them
  /// together.
  void complete(std::vector<OptionWord>& row) const {
    std::vector<OptionWord> all = row;
    for (std::size_t key = 0; key < words_.size(); ++key) {
      const auto is_there = [&](const OptionWord& word) { return word.key == key; };
      if (std::any_of(row.begin(), row.end(), is_there)) continue;
      OptionWord best{key, 0};
      std::size_t most = gain(all, best);
      for (std::size_t place = 1; place < words_[key].size(); ++place) {
        const std::size_t gained = gain(all, {key, place});
        if (gained > most) best.place = place;
        most = std::max(most, gained);
      }
      all.push_back(best);
    }
    std::erase_if(all, [&](const OptionWord& word) {
      return word.place == 0 || std::find(row.begin(), row.end(), word) != row.end();
    });
    put_in_order(row, all);
    add_legal(row, all);
  }

  /// First what only this row makes possible, then the words of keys that have most left, last what
  /// needs others.
  void put_in_order(const std::vector<OptionWord>& row, std::vector<OptionWord>& words) const {
    const Config now = read_(settings_in(row)).config;
    const auto rank = [&](const OptionWord& word) {
      const auto acts = option_keys()[word.key].acts;
      if (acts == nullptr || acts(file_)) return 1;
      return acts(now) ? 0 : 2;
    };
    const auto left = [&](const OptionWord& word) {
      return std::ranges::count_if(open_, [&](const Wanted& one) {
        return one.first == one.second && one.first.key == word.key;
      });
    };
    std::ranges::stable_sort(
        words, {}, [&](const OptionWord& word) { return std::pair(rank(word), -left(word)); });
  }

  /// Half of the words after the other, so that few that are not legal are found with few tries.
  void add_legal(std::vector<OptionWord>& row, std::span<const OptionWord> more) const {
    if (more.empty() || row.size() >= max_words_) return;
    std::vector<OptionWord> all = row;
    all.insert(all.end(), more.begin(), more.end());
    if (all.size() <= max_words_ && !refusal(all)) {
      row = std::move(all);
    } else if (more.size() > 1) {
      add_legal(row, more.first(more.size() / 2));
      add_legal(row, more.subspan(more.size() / 2));
    }
  }

  Settings settings_in(const std::vector<OptionWord>& row) const {
    Settings settings;
    for (const OptionWord& word : row) {
      const Settings& own = words_[word.key][word.place];
      settings.insert(settings.end(), own.begin(), own.end());
    }
    return settings;
  }

  void take(std::vector<OptionWord> row) {
    std::set<std::size_t> set;
    for (const OptionWord& word : row) set.insert(word.key);
    for (std::size_t key = 0; key < words_.size(); ++key) {
      if (!set.contains(key)) row.push_back({key, 0});
    }
    std::sort(row.begin(), row.end());
    std::vector<Settings> words;
    for (std::size_t a = 0; a < row.size(); ++a) {
      if (row[a].place > 0) {
        open_.erase({row[a], row[a]});
        taken_.insert(row[a]);
        words.push_back(words_[row[a].key][row[a].place]);
      }
      for (std::size_t b = a + 1; b < row.size(); ++b) open_.erase({row[a], row[b]});
    }
    if (!words.empty()) selection_.combinations.push_back(std::move(words));
  }

  /// The first rule that keeps a single rank from running the file with these words.
  std::optional<Diagnostic> refusal(const std::vector<OptionWord>& row) const {
    const Settings settings = settings_in(row);
    std::set<std::string> paths;
    for (const std::string& setting : settings) {
      if (paths.insert(path_in(setting)).second) continue;
      return refusal_of("set-twice", path_in(setting) + " is set twice");
    }
    const ReadResult read = read_(settings);
    for (const Diagnostic& one : read.diagnostics.list()) {
      if (one.severity == Severity::error) return one;
    }
    for (const OptionWord& word : row) {
      const OptionKey& key = option_keys()[word.key];
      if (word.place == 0 || key.acts == nullptr || key.acts(read.config)) continue;
      return refusal_of("no-effect", std::string(key.path) + " has no effect");
    }
    Diagnostics diagnostics;
    prepare(alone(read.config), read.sources, {}, Purpose::verify, diagnostics);
    for (const Diagnostic& one : diagnostics.list()) {
      if (one.severity == Severity::error) return one;
    }
    return std::nullopt;
  }

  /// Whether a combination has the value, with whatever.
  bool has_value(const std::string& value) const {
    return std::any_of(taken_.begin(), taken_.end(), [&](const OptionWord& word) {
      return words_[word.key][word.place].front() == value;
    });
  }

  /// Values that no combination has, with the rule that forbids each by itself.
  void name_forbidden() {
    for (std::size_t key = 0; key < words_.size(); ++key) {
      for (std::size_t place = 1; place < words_[key].size(); ++place) {
        const OptionWord word{key, place};
        if (has_value(words_[key][place].front())) continue;
        const std::optional<Diagnostic> rule = refusal({word});
        // Some need a word that is in no combination either.
        if (!rule || rule->code == "no-effect") continue;
        selection_.skipped[rule->code].push_back(words_[key][place].front());
        selection_.rules.emplace(rule->code, rule->message);
      }
    }
  }

  const ReadWith& read_;
  const Config file_;
  bool pairs_;
  std::size_t max_words_ = 0;                 // of a combination
  std::vector<std::vector<Settings>> words_;  // by key: nothing for the file's value, then others
  std::set<Wanted> open_;                     // in no combination yet
  std::set<OptionWord> taken_;
  OptionSelection selection_;
};

}  // namespace

OptionSelection select_options(const ReadWith& read, bool pairs) {
  return OptionCover(read, pairs).select();
}

Settings settings_of(const std::vector<Settings>& words) {
  Settings all;
  for (const Settings& settings : words) all.insert(all.end(), settings.begin(), settings.end());
  return all;
}

}  // namespace trainctl
