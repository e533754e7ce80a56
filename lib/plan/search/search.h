// auto_parallel: searches, by rule or by seconds, how the ranks of a stage share its operators
// (docs/auto-parallel.md). The result is an ordinary configuration: tensor_parallel and
// operator_splits with semi_auto_parallel.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/search/given.h"
#include "plan/search/recursive.h"
#include "plan/tables/mesh.h"
#include "plan/tables/site.h"

namespace trainctl {

class Check;

struct SearchInput {
  const Config& config;  // with parallel_mode auto_parallel
  const SourceMap& sources;
  const Site& site;
  SearchedSplits given;                         // splits of operator_splits and of a strategy file
  std::optional<std::int64_t> tensor_parallel;  // given value, or that of a strategy file
};

/// A decision of dynamic_programming, and the fastest layout with another decision here and equal
/// ones elsewhere; for tensor_parallel, with any splits.
struct OtherDecision {
  std::string of;         // name of the decision: "tensor_parallel", "attention of layers 0-3"
  std::string taken;      // chosen value: "4", "features"
  std::string otherwise;  // value in the other layout: "2", "tokens"
  double seconds = 0;     // seconds of a step with the other layout
  bool fits = true;       // whether that layout fits into memory; if not, `seconds` is void
  bool at_least = false;  // whether the search ended early, so that `seconds` is a lower bound
};

/// How dynamic_programming found its answer; unset if the answer comes from an earlier search.
struct SecondsSearch {
  std::string device;                                 // device whose prices were used
  double limit_gib = 0;                               // memory limit of a rank
  std::size_t bounded = 0, drafted = 0, planned = 0;  // numbers of layouts
  double gap = 0;          // share by which an unplanned layout could be faster
  double seconds = 0;      // seconds of a step
  std::int64_t bytes = 0;  // bytes of the fullest rank on its device
  std::vector<OtherDecision> others{};
};

struct SearchReport {
  SearchMode mode = "recursive_programming";
  std::int64_t ranks = 1;  // ranks of a stage, without context parallelism
  std::int64_t tensor_parallel = 1;
  std::int64_t data_parallel = 1;
  SearchedSplits given;
  SearchedSplits splits;                    // splits of all operators except experts
  std::vector<StageSearch> stages;          // for recursive_programming: one per stage
  std::optional<SecondsSearch> by_seconds;  // for dynamic_programming
  std::vector<std::string> notes{};         // notes for output: "search-merged: ..."
};

/// Whether the given sizes divide the number of ranks. If not, other rules report an error.
bool sizes_divide(const SearchInput& input, const Mesh& mesh);

/// Runs sharding_propagation or recursive_programming. nullopt if given values conflict, which adds
/// the error "search-operator", or if a rule for all configurations is broken and will be reported.
std::optional<SearchReport> search_by_rule(const SearchInput& input, Check& check);

/// A search in any mode: search_by_rule() or, for dynamic_programming, search_by_seconds() in
/// plan/prepare/search_by_seconds.h.
using ArrangementSearcher = std::function<std::optional<SearchReport>(const SearchInput&, Check&)>;

/// Sets the keys that the search decides; messages about them point to parallel_mode.
void take_answer(const SearchReport& report, Config& config, SourceMap& sources);

}  // namespace trainctl
