// auto_parallel: how the ranks of a stage share its operators, found by rule
// (docs/auto-parallel.md). The answer is an ordinary configuration: tensor_parallel and
// operator_splits under semi_auto_parallel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/search/given.h"
#include "plan/search/recursive.h"
#include "plan/tables/site.h"

namespace trainctl {

class Check;

struct SearchInput {
  const Config& config;  // with parallel_mode auto_parallel
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

struct SearchReport {
  SearchMode mode = SearchMode::recursive_programming;
  std::int64_t ranks = 1;  // of a stage, without context parallelism
  std::int64_t tensor_parallel = 1;
  std::int64_t data_parallel = 1;
  SearchedSplits given;
  SearchedSplits splits;            // of every operator but experts
  std::vector<StageSearch> stages;  // recursive_programming
  std::vector<std::string> notes;   // "search-merged: ..."
};

/// nullopt: what is given does not fit together. It then has added the error "search-operator", or
/// a rule that any configuration must keep is broken and will be reported.
std::optional<SearchReport> search_layout(const SearchInput& input, Check& check);

/// Replaces the keys that the search answers; messages about them name the place of parallel_mode.
void take_answer(const SearchReport& report, Config& config, SourceMap& sources);

}  // namespace trainctl
