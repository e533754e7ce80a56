// auto_parallel: how the ranks of a stage share its operators, found by rule or by seconds
// (docs/auto-parallel.md). The answer is an ordinary configuration: tensor_parallel and
// operator_splits under semi_auto_parallel.
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
  SearchedSplits given;                         // of operator_splits and of a strategy file
  std::optional<std::int64_t> tensor_parallel;  // given, or that of a strategy file
};

/// The rounds of one stage.
struct StageSearch {
  int stage = 0;
  SearchNet net;
  RecursiveAnswer answer;
};

/// A decision of dynamic_programming, and the fastest layout in which only it is otherwise; of
/// tensor_parallel, whichever words that has.
struct OtherDecision {
  std::string of;         // "tensor_parallel", "attention of layers 0-3"
  std::string taken;      // "4", "features"
  std::string otherwise;  // "2", "tokens"
  double seconds = 0;     // of a step
  bool fits = true;       // into the memory; else seconds say nothing
  bool at_least = false;  // the search for it ended early, and seconds are its bound
};

/// How dynamic_programming came to its answer. Of an answer that is taken from an earlier search
/// there is none.
struct SecondsSearch {
  std::string device;                                 // whose prices the seconds are
  double limit_gib = 0;                               // of a rank
  std::size_t bounded = 0, drafted = 0, planned = 0;  // layouts that were looked at
  double gap = 0;          // the share by which one that was not planned could be faster
  double seconds = 0;      // of a step
  std::int64_t bytes = 0;  // of the fullest rank, on its device
  std::vector<OtherDecision> others{};
};

struct SearchReport {
  SearchMode mode = "recursive_programming";
  std::int64_t ranks = 1;  // of a stage, without context parallelism
  std::int64_t tensor_parallel = 1;
  std::int64_t data_parallel = 1;
  SearchedSplits given;
  SearchedSplits splits;                    // of every operator but experts
  std::vector<StageSearch> stages;          // recursive_programming
  std::optional<SecondsSearch> by_seconds;  // dynamic_programming
  std::vector<std::string> notes{};         // "search-merged: ..."
};

/// Whether sizes that are given divide the ranks; rules about any configuration say where they do
/// not.
bool sizes_divide(const SearchInput& input, const Mesh& mesh);

/// The first two search modes. nullopt: what is given does not fit together. It then has added the
/// error "search-operator", or a rule that any configuration must keep is broken and will be
/// reported.
std::optional<SearchReport> search_by_rule(const SearchInput& input, Check& check);

/// A search in any mode: search_by_rule, and plan/prepare/search_by_seconds.h for
/// dynamic_programming.
using StrategySearcher = std::function<std::optional<SearchReport>(const SearchInput&, Check&)>;

/// Replaces the keys that the search answers; messages about them name the place of parallel_mode.
void take_answer(const SearchReport& report, Config& config, SourceMap& sources);

}  // namespace trainctl
