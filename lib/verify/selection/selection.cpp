#include "verify/selection/selection.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "plan/rules/check.h"
#include "run/prepare.h"
#include "verify/alone.h"
#include "verify/selection/cover.h"

namespace trainctl {

namespace {

std::vector<LayoutSizes> sizes_of(std::int64_t world_size) {
  std::vector<LayoutSizes> all;
  for (std::int64_t tp = 1; tp <= world_size; ++tp) {
    for (std::int64_t pp = 1; pp <= world_size / tp; ++pp) {
      if (world_size % (tp * pp) != 0) continue;
      const std::int64_t replicas = world_size / (tp * pp);
      for (std::int64_t cp = 1; cp <= replicas; ++cp) {
        if (replicas % cp != 0) continue;
        for (const bool sequence : {false, true}) {
          if (sequence && tp == 1) continue;
          all.push_back({tp, pp, replicas / cp, sequence, cp});
        }
      }
    }
  }
  return all;
}

/// The words of each switch that are worth trying with these sizes.
ChoiceSet choices_of(const Config& config, const LayoutSizes& sizes) {
  ChoiceSet choices{.name = name_of(sizes), .words = {}};
  for (const LayoutSwitch& row : layout_switches()) {
    choices.words.push_back(row.words(config, sizes));
  }
  return choices;
}

/// The combination of the first words, and all combinations that differ from it in one word.
std::vector<std::vector<std::string>> plainest(const ChoiceSet& choices) {
  std::vector<std::string> first;
  for (const auto& words : choices.words) first.push_back(words.front());
  std::vector<std::vector<std::string>> all{first};
  for (std::size_t list = 0; list < choices.words.size(); ++list) {
    for (std::size_t place = 1; place < choices.words[list].size(); ++place) {
      all.push_back(first);
      all.back()[list] = choices.words[list][place];
    }
  }
  return all;
}

/// Selects layouts among those that the rules allow.
class Selector {
 public:
  Selector(const Config& config, const SourceMap& sources) : config_(config), sources_(sources) {}

  LayoutSelection select(std::int64_t world_size, bool exhaustive) {
    for (const LayoutSizes& sizes : sizes_of(world_size)) consider(sizes);
    if (exhaustive) {
      take_all();
    } else {
      take_cover();
    }
    return std::move(selection_);
  }

 private:
  /// Adds the sizes if a layout of these sizes is legal, else reports one finding for all of these.
  void consider(const LayoutSizes& sizes) {
    ChoiceSet choices = choices_of(config_, sizes);
    std::optional<Diagnostic> first;
    for (const auto& words : plainest(choices)) {
      const auto& refused = judge({sizes, words});
      if (!refused) {
        sizes_.push_back(sizes);
        choices_.push_back(std::move(choices));
        return;
      }
      if (!first) first = refused;
    }
    selection_.skip(choices.name, *first);
  }

  void take_all() {
    std::size_t count = 0;
    for (const ChoiceSet& choices : choices_) count += count_of(choices);
    if (count > max_combinations) {
      throw Error(ExitCode::usage,
                  "--exhaustive: " + format_grouped(static_cast<std::int64_t>(count)) +
                      " combinations of settings, and at most " +
                      format_grouped(static_cast<std::int64_t>(max_combinations)) +
                      " are planned; without it, layouts with every pair of settings are run");
    }
    for (const Combination& one : all_combinations(choices_)) {
      const LayoutChoice choice = choice_of(one);
      const auto& refused = judge(choice);
      if (refused) {
        selection_.skip(choice.name(), *refused);
      } else {
        selection_.chosen.push_back(choice);
      }
    }
  }

  void take_cover() {
    const PairCover cover =
        cover_pairs(choices_, [this](const Combination& one) { return !judge(choice_of(one)); });
    for (const Combination& one : cover.chosen) selection_.chosen.push_back(choice_of(one));
    std::set<std::string> forbidden;
    for (const ForbiddenPair& pair : cover.forbidden) forbidden.insert(name_of_pair(pair));
    for (const ForbiddenPair& pair : cover.forbidden) {
      if (!follows(pair, forbidden))
        selection_.skip(name_of_pair(pair), *judge(choice_of(pair.tried)));
    }
  }

  static std::string name_of_pair(const ForbiddenPair& pair) {
    return pair.first + "+" + pair.second;
  }

  /// Whether a pair adds nothing: a word is empty, or all sizes with both words forbid one alone.
  bool follows(const ForbiddenPair& pair, const std::set<std::string>& forbidden) const {
    if (pair.first.empty() || pair.second.empty()) return true;
    for (const ChoiceSet& choices : choices_) {
      if (choices.name == pair.first) return false;
      const auto has = [&](const std::string& word) {
        return std::any_of(choices.words.begin(), choices.words.end(), [&](const auto& words) {
          return std::count(words.begin(), words.end(), word) > 0;
        });
      };
      if (!has(pair.first) || !has(pair.second)) continue;
      if (!forbidden.contains(choices.name + "+" + pair.first) &&
          !forbidden.contains(choices.name + "+" + pair.second)) {
        return false;
      }
    }
    return true;
  }

  LayoutChoice choice_of(const Combination& one) const { return {sizes_[one.set], one.words}; }

  /// The diagnostic that refuses a layout, or nullopt. Each layout is judged once.
  const std::optional<Diagnostic>& judge(const LayoutChoice& choice) {
    const auto [at, is_new] = judged_.try_emplace(choice.name());
    if (is_new) at->second = layout_refusal(config_, sources_, choice);
    return at->second;
  }

  const Config& config_;
  const SourceMap& sources_;
  std::vector<LayoutSizes> sizes_;  // sizes with a legal layout
  std::vector<ChoiceSet> choices_;  // one per entry of sizes_
  std::map<std::string, std::optional<Diagnostic>> judged_;
  LayoutSelection selection_;
};

/// The way in which gradients of experts are summed, if the ranks with the same experts are not the
/// replicas of dense layers. No single word determines it: it follows from sizes, `ep`, `etp` and
/// the optimizer together. "" if there are no such sums.
std::string expert_sums(const Config& config, const LayoutChoice& choice) {
  if (config.moe.num_experts == 1) return "";
  const Config changed = with_layout(config, choice);
  const Mesh mesh = Facts(changed, {.world_size = choice.ranks()}).mesh;
  if (mesh.edp == 1 || (mesh.ep == 1 && cuts_experts_alike(mesh))) return "";
  return changed.parallel.parallel_optimizer.enable ? "in parts" : "whole";
}

/// Appends to `few` the first layout of `all` for each kind of expert sum that `few` lacks.
void add_expert_sums(const Config& config, const std::vector<LayoutChoice>& all,
                     std::vector<LayoutChoice>& few) {
  std::set<std::string> made{""};
  for (const LayoutChoice& choice : few) made.insert(expert_sums(config, choice));
  for (const LayoutChoice& choice : all) {
    if (made.insert(expert_sums(config, choice)).second) few.push_back(choice);
  }
}

}  // namespace

std::optional<Diagnostic> layout_refusal(const Config& config, const SourceMap& sources,
                                         const LayoutChoice& choice) {
  const Config changed = with_layout(config, choice);
  Diagnostics diagnostics;
  prepare(changed, sources,
          {.world_size = choice.ranks(),
           .ranks_per_host = choice.ranks(),
           .cores_per_host = choice.ranks()},
          Purpose::verify, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    if (diagnostic.severity == Severity::error) return diagnostic;
  }
  return std::nullopt;
}

LayoutSelection select_layouts(const Config& config, const SourceMap& sources,
                               std::int64_t world_size, bool exhaustive) {
  return Selector(config, sources).select(world_size, exhaustive);
}

LayoutSelection select_few_layouts(const Config& config, const SourceMap& sources,
                                   std::int64_t world_size) {
  LayoutSelection selection = select_layouts(config, sources, world_size, false);
  std::vector<WordRow> rows;
  for (const LayoutChoice& choice : selection.chosen) rows.push_back(choice.said());
  std::vector<LayoutChoice> few;
  for (const std::size_t row : few_with_most_words(rows, few_layouts)) {
    few.push_back(selection.chosen[row]);
  }
  add_expert_sums(config, selection.chosen, few);
  selection.chosen = std::move(few);
  return selection;
}

namespace {

/// A word to try: the index of its key, and its index among the words of the key, where 0 is the
/// file's own value.
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

/// Without pairs, the number of combinations over which words are distributed, so that each word's
/// effect shows together with many of the file's own values.
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
      // A word that needs another one stays open, for a combination with that one.
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
  using Wanted = std::pair<OptionWord, OptionWord>;  // equal words stand for one alone

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

  /// Adds a combination with these and many other open words. Returns false if not legal.
  bool take_with(std::vector<OptionWord> row) {
    if (refusal(row)) return false;
    complete(row);
    take(row);
    return true;
  }

  /// Adds `word` with the first word that makes it legal, unless some combination has it.
  void take_with_another(const OptionWord& word) {
    for (std::size_t key = 0; key < words_.size() && !taken_.contains(word); ++key) {
      if (key == word.key) continue;
      for (std::size_t place = 1; place < words_[key].size(); ++place) {
        if (take_with({word, {key, place}})) return;
      }
    }
  }

  /// The number of open words and pairs that a word would add to the row.
  std::size_t gain(const std::vector<OptionWord>& row, const OptionWord& added) const {
    std::size_t count = open_.contains({added, added}) ? row.size() + 1 : 0;
    for (const OptionWord& word : row) count += open_.contains(std::minmax(word, added)) ? 1 : 0;
    return count;
  }

  /// Adds, for each other key, the word that adds most, as far as a single rank can run the words
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

  /// Sorts words: first those that only this row makes effective, then by the number of open words
  /// of their key, last those that need other words.
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

  /// Adds all of `more` or, if not legal, each half, so that few tries find few illegal words.
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
    if (!words.empty()) selection_.chosen.push_back(std::move(words));
  }

  /// The first rule that forbids a single rank to run the file with these words, or nullopt.
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

  /// Whether some combination has the value.
  bool has_value(const std::string& value) const {
    return std::any_of(taken_.begin(), taken_.end(), [&](const OptionWord& word) {
      return words_[word.key][word.place].front() == value;
    });
  }

  /// Reports values that no combination has, with the rule that forbids each of these alone.
  void name_forbidden() {
    for (std::size_t key = 0; key < words_.size(); ++key) {
      for (std::size_t place = 1; place < words_[key].size(); ++place) {
        const OptionWord word{key, place};
        if (has_value(words_[key][place].front())) continue;
        const std::optional<Diagnostic> rule = refusal({word});
        // Some values need a word that no combination has either.
        if (!rule || rule->code == "no-effect") continue;
        selection_.skip(words_[key][place].front(), *rule);
      }
    }
  }

  const ReadWith& read_;
  const Config file_;
  bool pairs_;
  std::size_t max_words_ = 0;                 // limit of a combination
  std::vector<std::vector<Settings>> words_;  // by key: {} for the file's value, then others
  std::set<Wanted> open_;                     // wanted pairs that no combination has yet
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

namespace {

/// The largest divisor of `whole` that is at most `most`.
std::int64_t divisor(std::int64_t whole, std::int64_t most) {
  std::int64_t found = std::max<std::int64_t>(1, std::min(whole, most));
  while (whole % found != 0) --found;
  return found;
}

void cut_model(Config& config) {
  ModelConfig& model = config.model;
  MoeConfig& moe = config.moe;
  const bool both = moe.num_experts > 1 && (moe.first_dense_layers > 0 || moe.layer_frequency > 1);
  // One layer of each kind.
  for (LayerEntry& entry : model.layers) entry.count = 1;
  model.layer_pattern.reset();
  model.num_layers = std::max<std::int64_t>(both ? 2 : 1, std::ssize(model.layers));
  moe.first_dense_layers = both ? 1 : 0;
  moe.layer_frequency = 1;
  model.from.reset();
  model.vocab_size = std::min(model.vocab_size, max_layer_vocabulary);
  if (model.max_position_embeddings == model.seq_length) model.max_position_embeddings.reset();
  model.seq_length = divisor(model.seq_length, max_layer_tokens);
  moe.expert_group_size.reset();
  moe.capacity_group_size.reset();
  if (config.data.eod_token >= model.vocab_size) config.data.eod_token.reset();
}

void cut_layout(Config& config) {
  ParallelConfig& parallel = config.parallel;
  parallel.pipeline_stages = 1;
  parallel.virtual_pipeline_stages = 1;
  parallel.pipeline = {};
  parallel.delay_wgrad_compute = false;
  parallel.data_parallel = std::min(parallel.data_parallel.value_or(1), max_layer_replicas);
  const std::int64_t replicas = *parallel.data_parallel * parallel.context_parallel;
  parallel.expert_parallel = std::gcd(parallel.expert_parallel, replicas);
  parallel.expert_tensor_parallel.reset();
  parallel.device_num.reset();
  parallel.cp_comm_type.layers.resize(1);
  for (auto* splits :
       {&parallel.operator_splits.attention, &parallel.operator_splits.feed_forward}) {
    if (*splits && (*splits)->find_first_of(",*") != std::string::npos) splits->reset();
  }
  config.recompute.layers.reset();
  config.recompute.layers_per_stage.reset();
  config.recompute.num_microbatches_with_partial_activation_checkpoints.reset();
  config.offload.num_layers = std::min<std::int64_t>(config.offload.num_layers, 1);
}

}  // namespace

Config one_layer(Config config, std::int64_t replicas) {
  cut_model(config);
  cut_layout(config);
  config.train.global_batch_size = 2 * replicas;
  config.train.micro_batch_size = 1;
  config.train.micro_batch_num.reset();
  config.train.rampup_batch_size.reset();
  return config;
}

std::string what_is_left(const Config& whole, const Config& layer) {
  const auto part = [](std::int64_t left, std::int64_t all, const std::string& what) {
    return format_grouped(left) + " of " + format_grouped(all) + " " + what;
  };
  return part(layer.model.num_layers, whole.model.num_layers, "layers") + ", " +
         part(layer.model.vocab_size, whole.model.vocab_size, "rows of vocabulary") + ", " +
         part(layer.model.seq_length, whole.model.seq_length, "tokens of a sequence");
}

}  // namespace trainctl
