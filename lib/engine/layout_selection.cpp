#include "engine/layout_selection.h"

#include <optional>
#include <utility>

#include "config/standing.h"
#include "engine/layout_cover.h"
#include "engine/runnable.h"
#include "plan/plan.h"

namespace trainctl {

namespace {

std::vector<LayoutSizes> sizes_of(std::int64_t world_size) {
  std::vector<LayoutSizes> all;
  for (std::int64_t tp = 1; tp <= world_size; ++tp) {
    for (std::int64_t pp = 1; pp <= world_size / tp; ++pp) {
      if (world_size % (tp * pp) != 0) continue;
      for (const bool sequence : {false, true}) {
        if (sequence && tp == 1) continue;
        all.push_back({tp, pp, world_size / (tp * pp), sequence});
      }
    }
  }
  return all;
}

/// The first rule that refuses the layout.
std::optional<Diagnostic> refusal(const Config& config, const SourceMap& sources,
                                  const LayoutChoice& choice) {
  const Config changed = with_layout(config, choice);
  Diagnostics diagnostics;
  const Plan plan = make_plan(changed,
                              {.world_size = choice.ranks(),
                               .ranks_per_host = choice.ranks(),
                               .cores_per_host = choice.ranks()},
                              sources, diagnostics);
  check_built(changed, sources, Severity::error, diagnostics);
  if (!diagnostics.has_errors()) check_runnable(plan, sources, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics.list()) {
    if (diagnostic.severity == Severity::error) return diagnostic;
  }
  return std::nullopt;
}

/// The words worth trying with these sizes.
ChoiceSet family_of(const Config& config, const LayoutSizes& sizes) {
  ChoiceSet family{.name = name_of(sizes), .words = {}};
  for (const LayoutSwitch& row : layout_switches()) {
    family.words.push_back(row.words(config, sizes));
  }
  return family;
}

/// The first words, and everything that differs from them in one word.
std::vector<std::vector<std::string>> plainest(const ChoiceSet& family) {
  std::vector<std::string> first;
  for (const auto& words : family.words) first.push_back(words.front());
  std::vector<std::vector<std::string>> all{first};
  for (std::size_t list = 0; list < family.words.size(); ++list) {
    for (std::size_t place = 1; place < family.words[list].size(); ++place) {
      all.push_back(first);
      all.back()[list] = family.words[list][place];
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
    const auto legal = [this](const Combination& one) {
      return is_legal({sizes_[one.family], one.words});
    };
    const auto chosen = exhaustive ? all_combinations(families_) : cover_pairs(families_, legal);
    for (const Combination& one : chosen) {
      if (legal(one)) selection_.layouts.push_back({sizes_[one.family], one.words});
    }
    return std::move(selection_);
  }

 private:
  /// Sizes that cannot be are one finding, not one for each setting of the switches.
  void consider(const LayoutSizes& sizes) {
    ChoiceSet family = family_of(config_, sizes);
    std::optional<Diagnostic> first;
    for (const auto& words : plainest(family)) {
      const auto refused = refusal(config_, sources_, {sizes, words});
      if (!refused) {
        sizes_.push_back(sizes);
        families_.push_back(std::move(family));
        return;
      }
      if (!first) first = refused;
    }
    skip(family.name, *first);
  }

  /// Each layout is judged once.
  bool is_legal(const LayoutChoice& choice) {
    const std::string name = choice.name();
    const auto [at, is_new] = judged_.try_emplace(name, true);
    if (!is_new) return at->second;
    const auto refused = refusal(config_, sources_, choice);
    if (refused) skip(name, *refused);
    return at->second = !refused;
  }

  void skip(const std::string& layout, const Diagnostic& rule) {
    selection_.skipped[rule.code].push_back(layout);
    selection_.rules.emplace(rule.code, rule.message);
  }

  const Config& config_;
  const SourceMap& sources_;
  std::vector<LayoutSizes> sizes_;   // that can be
  std::vector<ChoiceSet> families_;  // of those
  std::map<std::string, bool> judged_;
  LayoutSelection selection_;
};

}  // namespace

LayoutSelection select_layouts(const Config& config, const SourceMap& sources,
                               std::int64_t world_size, bool exhaustive) {
  return Selector(config, sources).select(world_size, exhaustive);
}

}  // namespace trainctl
