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

/// A search for the frontier lowers the memory limit in this number of equal steps.
inline constexpr int parts_of_memory = 8;

/// The layouts of a search, with their bounds and drafts within the whole memory limit and within
/// smaller parts of it. A bound within a larger part also holds within a smaller one.
class KnownArrangements {
 public:
  /// `search` and `machine` must outlive this object. `parts`: number of limits, the largest first.
  KnownArrangements(const ArrangementSearch& search, const Machine& machine, int parts = 1);

  const std::vector<RunArrangement>& layouts() const { return layouts_; }
  /// The memory limit of each part [GiB], the largest first.
  std::span<const double> limits() const { return limits_; }
  /// Lower bounds for a layout: the bytes of its states, and the seconds of a step within the parts
  /// searched so far.
  std::int64_t states(std::size_t number) const { return states_[number]; }
  double seconds(std::size_t number) const { return seconds_[number]; }
  /// Raises the bound of a layout's seconds within a part. Returns a lower bound of its bytes.
  std::int64_t bring_closer(std::size_t number, std::size_t part);

  /// The needs of a layout's draft within each part; nullptr if it was not drafted yet.
  const std::vector<ArrangementNeeds>* drafted(std::size_t number) const;
  void keep_draft(std::size_t number, std::vector<ArrangementNeeds> needs);
  std::vector<ArrangementNeeds> draft(std::size_t number) const;

 private:
  const ArrangementSearch& search_;
  const Machine& machine_;
  ArrangementBound bound_;
  std::vector<RunArrangement> layouts_;
  std::vector<double> limits_;
  std::vector<double> seconds_;       // one per layout
  std::vector<std::int64_t> states_;  // one per layout
  std::map<std::size_t, std::vector<ArrangementNeeds>> drafts_;
};

/// The search within one part of the limit, which search.memory_limit gives.
SearchedArrangements search_once(const ArrangementSearch& search, KnownArrangements& known,
                                 std::size_t part = 0);

}  // namespace trainctl
