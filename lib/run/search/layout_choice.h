// The layout of auto_parallel on the way to a plan: the layout that a run found before is in
// layout.yaml of its directory, and a resumed run takes it (docs/auto-parallel.md).
#pragma once

#include <optional>
#include <string>

#include "config/read/read.h"
#include "plan/search/search.h"

namespace trainctl {

inline constexpr const char* layout_file_name = "layout.yaml";

struct ChosenStrategy {
  std::optional<SearchReport> report;  // nullopt: nothing was searched
  std::string taken_from;  // the layout.yaml that the answer came from; empty: it was searched
  std::string file;        // what layout.yaml is to hold
};

/// How the answer of auto_parallel is come by.
struct StrategyRequest {
  bool again = false;  // although the run's directory has the answer of an earlier search
  /// The answer that another rank has found, ChosenStrategy::file. Empty: this rank looks for it.
  std::string answer{};
  ChosenStrategy* choice = nullptr;  // becomes what was chosen
};

/// With auto_parallel replaces the keys that the search answers: by the answer of another rank, by
/// the layout.yaml in output.dir where there is one and it is not to be searched again, else by
/// `search`. Adds "layout-stale" where that file was edited, or where a value that the search read
/// is another now. For another world size it searches, with a note. Another rank's answer is taken
/// as it is: ranks with other files make plans with other hashes.
ChosenStrategy choose_layout(ReadResult& read, const Site& site, const StrategySearcher& search,
                             const StrategyRequest& request);

}  // namespace trainctl
