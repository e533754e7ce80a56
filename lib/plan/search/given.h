// The splits of operators that a search must keep, from operator_splits or a strategy file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "plan/search/net.h"

namespace trainctl {

/// A split for each operator; unset if the search decides.
struct SearchedSplits {
  std::optional<SplitBy> embedding{}, head{};
  std::vector<std::optional<SplitBy>> attention{}, feed_forward{};  // one per layer of the model

  bool any() const;
  /// The split of one layer; the head counts as layer 0.
  std::optional<SplitBy>& of(SearchOperator which, std::int64_t layer);
  const std::optional<SplitBy>& of(SearchOperator which, std::int64_t layer) const;
  friend bool operator==(const SearchedSplits&, const SearchedSplits&) = default;
};

/// Splits of `layers` layers, all unset.
SearchedSplits no_splits(std::int64_t layers);
/// The splits that operator_splits gives. An invalid text gives none; rules report it.
SearchedSplits given_splits(const OperatorSplitsConfig& said, std::int64_t layers);
/// The splits in the form of operator_splits; unset splits of layers are features.
OperatorSplitsConfig splits_config(const SearchedSplits& splits);

}  // namespace trainctl
