// The layout of auto_parallel before a plan is made: a run stores the layout found in layout.yaml
// of its directory, and a resumed run uses it (docs/auto-parallel.md).
#pragma once

#include <optional>
#include <string>

#include "config/read/read.h"
#include "plan/search/search.h"

namespace trainctl {

inline constexpr const char* layout_file_name = "layout.yaml";

struct ChosenStrategy {
  std::optional<SearchReport> report;  // nullopt without a search result
  std::string taken_from;  // path of the layout.yaml used; empty if the layout was searched
  std::string file;        // contents for layout.yaml
};

/// How to obtain the answer of auto_parallel.
struct StrategyRequest {
  bool again = false;  // search even if the run's directory has an earlier answer
  /// The answer that another rank has found, ChosenStrategy::file. Empty: this rank looks for it.
  std::string answer{};
  ChosenStrategy* choice = nullptr;  // receives the chosen layout
};

/// With auto_parallel, replaces the searched keys by an answer: that of another rank, that of
/// layout.yaml in output.dir, if there is one and it may be used, or the result of `search`.
/// Reports "layout-stale" if that file was edited, or if a value that the search read has changed.
/// Searches, with a note, if the world size has changed. Another rank's answer is not checked:
/// ranks with other files get plans with other hashes.
ChosenStrategy choose_layout(ReadResult& read, const Site& site, const StrategySearcher& search,
                             const StrategyRequest& request);

}  // namespace trainctl
