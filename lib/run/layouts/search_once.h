// A single search of layouts within one memory limit, without comparisons.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "run/layouts/draft_layout.h"
#include "run/layouts/layout_bound.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

/// The parts of the limit within which a search looks for its frontier.
inline constexpr int parts_of_memory = 8;

/// The layouts of a search, and their bounds and drafts within its limit and within parts of the
/// limit. The largest part comes first: a bound within it holds within the next one.
class KnownStrategies {
 public:
  /// `search` and `machine` must outlive it. `parts`: of the limit, in eighths, from all of it on.
  KnownStrategies(const StrategySearch& search, const Machine& machine, int parts = 1);

  const std::vector<RunStrategy>& layouts() const { return layouts_; }
  /// GiB of each part.
  std::span<const double> limits() const { return limits_; }
  /// The least bytes of a layout's states, and the seconds that a step takes at least within the
  /// parts that were searched.
  std::int64_t states(std::size_t number) const { return states_[number]; }
  double seconds(std::size_t number) const { return seconds_[number]; }
  /// Brings the bound closer within a part; the bytes that the layout needs at least.
  std::int64_t bring_closer(std::size_t number, std::size_t part);

  /// The needs of a draft within each part; nullptr: it was not drafted yet.
  const std::vector<StrategyNeeds>* drafted(std::size_t number) const;
  void keep_draft(std::size_t number, std::vector<StrategyNeeds> needs);
  std::vector<StrategyNeeds> draft(std::size_t number) const;

 private:
  const StrategySearch& search_;
  const Machine& machine_;
  StrategyBound bound_;
  std::vector<RunStrategy> layouts_;
  std::vector<double> limits_;
  std::vector<double> seconds_;       // by layout
  std::vector<std::int64_t> states_;  // by layout
  std::map<std::size_t, std::vector<StrategyNeeds>> drafts_;
};

/// The search within a part of the limit; `search.memory_limit` is that of the part.
SearchedStrategies search_once(const StrategySearch& search, KnownStrategies& known,
                               std::size_t part = 0);

}  // namespace trainctl
