#include "verify/selection/layout_selection.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "plan/rules/check.h"
#include "run/prepare.h"
#include "verify/selection/layout_cover.h"
#include "verify/selection/word_cover.h"

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

/// The words worth trying with these sizes.
ChoiceSet choices_of(const Config& config, const LayoutSizes& sizes) {
  ChoiceSet choices{.name = name_of(sizes), .words = {}};
  for (const LayoutSwitch& row : layout_switches()) {
    choices.words.push_back(row.words(config, sizes));
  }
  return choices;
}

/// The first words, and everything that differs from them in one word.
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

/// Looks for the layouts that the rules allow.
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
  /// Sizes that cannot be are one finding, not one for each setting of the switches.
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
    skip(choices.name, *first);
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
        skip(choice.name(), *refused);
      } else {
        selection_.layouts.push_back(choice);
      }
    }
  }

  void take_cover() {
    const PairCover cover =
        cover_pairs(choices_, [this](const Combination& one) { return !judge(choice_of(one)); });
    for (const Combination& one : cover.chosen) selection_.layouts.push_back(choice_of(one));
    std::set<std::string> forbidden;
    for (const ForbiddenPair& pair : cover.forbidden) forbidden.insert(name_of_pair(pair));
    for (const ForbiddenPair& pair : cover.forbidden) {
      if (!follows(pair, forbidden)) skip(name_of_pair(pair), *judge(choice_of(pair.tried)));
    }
  }

  static std::string name_of_pair(const ForbiddenPair& pair) {
    return pair.first + "+" + pair.second;
  }

  /// Whether all sizes with both words forbid one of them by itself, or a word is none.
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

  /// The diagnostic that refuses a layout, if any; each layout is judged once.
  const std::optional<Diagnostic>& judge(const LayoutChoice& choice) {
    const auto [at, is_new] = judged_.try_emplace(choice.name());
    if (is_new) at->second = layout_refusal(config_, sources_, choice);
    return at->second;
  }

  void skip(const std::string& layout, const Diagnostic& rule) {
    selection_.skipped[rule.code].push_back(layout);
    selection_.rules.emplace(rule.code, rule.message);
  }

  const Config& config_;
  const SourceMap& sources_;
  std::vector<LayoutSizes> sizes_;  // that can be
  std::vector<ChoiceSet> choices_;  // of those
  std::map<std::string, std::optional<Diagnostic>> judged_;
  LayoutSelection selection_;
};

/// How gradients of experts are summed where the ranks that hold the same ones are others than the
/// replicas of dense layers. No word of a layout says it by itself: it follows from its sizes,
/// `ep`, `etp` and the optimizer together. "": such sums are not made.
std::string expert_sums(const Config& config, const LayoutChoice& choice) {
  if (config.moe.num_experts == 1) return "";
  const Config changed = with_layout(config, choice);
  const Mesh mesh = Facts(changed, {.world_size = choice.ranks()}).mesh;
  if (mesh.edp == 1 || (mesh.ep == 1 && cuts_experts_alike(mesh))) return "";
  return changed.parallel.parallel_optimizer.enable ? "in parts" : "whole";
}

/// To `few` the first layout of `all` with each such sum that none of `few` makes.
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
  for (const LayoutChoice& choice : selection.layouts) rows.push_back(choice.said());
  std::vector<LayoutChoice> few;
  for (const std::size_t row : few_with_most_words(rows, few_layouts)) {
    few.push_back(selection.layouts[row]);
  }
  add_expert_sums(config, selection.layouts, few);
  selection.layouts = std::move(few);
  return selection;
}

}  // namespace trainctl
