// The layout of auto_parallel before a plan is made: a run stores the layout found in layout.yaml
// of its directory, and a resumed run uses it (docs/auto-parallel.md).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/group.h"
#include "config/read/read.h"
#include "plan/search/search.h"

namespace trainctl {

inline constexpr const char* layout_file_name = "layout.yaml";

struct ChosenArrangement {
  std::optional<SearchReport> report;  // result of the search; nullopt without auto_parallel
  std::string taken_from;  // path of the layout.yaml used; empty if the layout was searched
  std::string file;        // contents for layout.yaml
};

/// How to obtain the answer of auto_parallel.
struct ArrangementRequest {
  bool again = false;  // search even if the run's directory has an earlier answer
  /// ChosenArrangement::file of another rank. If empty, this rank finds the answer itself.
  std::string answer{};
  ChosenArrangement* choice = nullptr;  // receives the chosen layout
};

/// With auto_parallel, replaces the searched keys by an answer: from another rank, from a usable
/// layout.yaml in output.dir, or from `search`. Reports "layout-stale" if layout.yaml was edited,
/// or if a value that its search read has changed. If the world size has changed, searches again
/// and adds a note. Does not check another rank's answer: ranks with other files get plans with
/// other hashes.
ChosenArrangement choose_layout(ReadResult& read, const Site& site,
                                const ArrangementSearcher& search,
                                const ArrangementRequest& request);

/// All ranks of a run use the layout that rank 0 has found. Calls `prepare` on every rank. If rank
/// 0 `searches`, it goes first, and the other ranks get its answer in `layout`, which must have a
/// `choice`; otherwise all ranks call it at once. Waiting ranks have no deadline. `what`: name of
/// the configuration. If `prepare` throws on one rank, every rank throws. Collective.
void prepare_with_one_answer(Group& everyone, const char* what, bool searches,
                             ArrangementRequest& layout, const std::function<void()>& prepare);

}  // namespace trainctl
