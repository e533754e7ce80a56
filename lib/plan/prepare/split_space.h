// The layouts among which dynamic_programming chooses (plan/prepare/search_by_seconds.h).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/search/given.h"
#include "plan/tables/model.h"

namespace trainctl {

/// A choice of splits: of both tables (embedding, head), or of one layer (attention, feed_forward;
/// none for feed_forward if the layer has experts).
struct SplitChoice {
  SplitBy first = SplitBy::features;
  std::optional<SplitBy> second{};
  double seconds = 0;  // least time of F, B and W for a micro-batch; 0 if unknown

  std::optional<SplitBy> word(bool is_second) const { return is_second ? second : first; }
};

/// Layers of one kind with the same given splits, and their possible choices.
struct LayerGroup {
  std::vector<std::int64_t> layers{};
  std::vector<SplitChoice> choices{};
};

/// The choices of a group: `first` for its first `count` layers, `rest` for the others.
struct GroupChoice {
  std::size_t first = 0, rest = 0;
  std::int64_t count = 0;
  bool is_mixed() const { return first != rest; }
  auto operator<=>(const GroupChoice&) const = default;
};

/// A layout, as indices of the choices in a SplitSpace.
struct SplitChoices {
  std::int64_t tensor_parallel = 1;
  std::size_t ends = 0;
  std::vector<GroupChoice> groups{};
  bool is_mixed() const;  // whether a group is mixed
  auto operator<=>(const SplitChoices&) const = default;
};

/// All layouts in which `tensor_parallel` ranks share operators. With one rank, splits have no
/// effect and each part has one choice.
struct SplitSpace {
  std::int64_t tensor_parallel = 1;
  std::int64_t layers = 0;  // number of layers of the model
  bool tied = false;        // token table and head are one
  std::vector<SplitChoice> ends{};
  std::vector<LayerGroup> groups{};

  /// The layout with choice `number` for the tables and every group, modulo their number of
  /// choices.
  SplitChoices uniform(std::size_t number) const;
  /// The largest number of choices of a part.
  std::size_t max_choices() const;
  /// Sorts the choices of each part, fastest first.
  void sort();
  /// The least seconds of the passes of a micro-batch.
  double seconds(const SplitChoices& layout) const;
  SearchedSplits splits(const SplitChoices& layout) const;
  /// For each part from `part` on (0 = tables, then groups), the layout with the next choice for
  /// it, and the part. Starting with uniform(0) and part 0, this reaches every uniform layout
  /// exactly once.
  std::vector<std::pair<SplitChoices, std::size_t>> slower(const SplitChoices& layout,
                                                           std::size_t part) const;
  /// The layouts in which a group has one layer fewer with its faster choice, replaced by a slower
  /// one, first or last in the group. Starting with uniform layouts, this reaches every mixed
  /// layout, some more than once.
  std::vector<SplitChoices> mixed(const SplitChoices& layout) const;
  /// Calls near(other, part, second) for each layout in which one operator has another split in all
  /// layers; `part` and `second` (second split of the part) name the operator.
  void each_neighbour(const SplitChoices& layout,
                      const std::function<void(const SplitChoices& other, std::size_t part,
                                               bool second)>& near) const;
  /// The splits of a part in the form of operator_splits: "features", "features*3, tokens"; "none"
  /// for experts.
  std::string text(const SplitChoices& layout, std::size_t part, bool second) const;
};

/// The space of layouts with `tensor_parallel` ranks; given splits are fixed.
SplitSpace split_space(const ModelShape& model, const SearchedSplits& given,
                       std::int64_t tensor_parallel);

}  // namespace trainctl
