// The layouts that dynamic_programming chooses from (plan/prepare/search_by_seconds.h).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/search/given.h"
#include "plan/tables/model.h"

namespace trainctl {

/// One of the choices: the words of both tables (embedding, head), or of one layer (attention,
/// feed_forward, of which layers with experts have none).
struct SplitChoice {
  SplitBy first = SplitBy::features;
  std::optional<SplitBy> second{};
  double seconds = 0;  // the least of F, B and W of a micro-batch; 0: not known

  std::optional<SplitBy> word(bool is_second) const { return is_second ? second : first; }
};

/// Layers of one kind of which the same is given, and what they may have.
struct LayerGroup {
  std::vector<std::int64_t> layers{};
  std::vector<SplitChoice> choices{};
};

/// The words of a group: its first `count` layers have one choice, the others another.
struct GroupChoice {
  std::size_t first = 0, rest = 0;
  std::int64_t count = 0;
  bool is_mixed() const { return first != rest; }
  auto operator<=>(const GroupChoice&) const = default;
};

/// Numbers of choices of a space.
struct SplitChoices {
  std::int64_t tensor_parallel = 1;
  std::size_t ends = 0;
  std::vector<GroupChoice> groups{};
  bool is_mixed() const;  // some group is
  auto operator<=>(const SplitChoices&) const = default;
};

/// Every layout in which this number of ranks shares operators. Where that is one rank, words say
/// nothing and each has one choice.
struct SplitSpace {
  std::int64_t tensor_parallel = 1;
  std::int64_t layers = 0;  // of the model
  bool tied = false;        // both tables are one
  std::vector<SplitChoice> ends{};
  std::vector<LayerGroup> groups{};

  /// In which the tables have the choice `number`, and so has every group; those with fewer begin
  /// again.
  SplitChoices uniform(std::size_t number) const;
  /// The most choices of a part.
  std::size_t max_choices() const;
  /// The fastest choices come first.
  void sort();
  /// Least seconds of the passes of a micro-batch.
  double seconds(const SplitChoices& layout) const;
  SearchedSplits splits(const SplitChoices& layout) const;
  /// For every part from `part` on (0: the tables, then the groups) the layout with its next choice
  /// there, and the part. Beginning with uniform(0) and the part 0, every uniform layout comes
  /// once.
  std::vector<std::pair<SplitChoices, std::size_t>> slower(const SplitChoices& layout,
                                                           std::size_t part) const;
  /// The layouts in which one of the groups has a layer less of its faster choice, and a slower one
  /// for it, before or behind the others. Beginning with the uniform ones every mixed layout comes,
  /// some of them more than once.
  std::vector<SplitChoices> mixed(const SplitChoices& layout) const;
  /// A layout in which one operator has one other word in all layers, with the part and whether it
  /// is the second of its words.
  struct Neighbour {
    SplitChoices layout;
    std::size_t part = 0;
    bool second = false;
  };
  std::vector<Neighbour> neighbours(const SplitChoices& layout) const;
  /// The words of a part as operator_splits writes them: "features", "features*3, tokens". Of
  /// experts "none".
  std::string text(const SplitChoices& layout, std::size_t part, bool second) const;
};

/// Words that are given stay.
SplitSpace split_space(const ModelShape& model, const SearchedSplits& given,
                       std::int64_t tensor_parallel);

}  // namespace trainctl
