// The splits of operators that a search has to keep: those of operator_splits, or of a strategy
// file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "plan/search/net.h"

namespace trainctl {

/// A word for each operator; none: the search decides.
struct SearchedSplits {
  std::optional<SplitBy> embedding{}, head{};
  std::vector<std::optional<SplitBy>> attention{}, feed_forward{};  // by layer of the model

  bool any() const;
  /// The split of one layer; the head has layer 0.
  std::optional<SplitBy>& of(SearchOperator which, std::int64_t layer);
  const std::optional<SplitBy>& of(SearchOperator which, std::int64_t layer) const;
  friend bool operator==(const SearchedSplits&, const SearchedSplits&) = default;
};

/// Nothing is given.
SearchedSplits no_splits(std::int64_t layers);
/// The splits that operator_splits gives. A text that cannot be read gives nothing; rules say so.
SearchedSplits given_splits(const OperatorSplitsConfig& said, std::int64_t layers);
/// As operator_splits writes them; where a layer has none, by features.
OperatorSplitsConfig splits_config(const SearchedSplits& splits);

}  // namespace trainctl
