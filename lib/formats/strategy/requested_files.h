// Strategy and group files on disk: parallel.strategy_ckpt_config and
// parallel.group_ckpt_save_file. Their contents are in formats/strategy/file.h and group_file.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/search/search.h"

namespace trainctl {

/// With semi_auto_parallel and several tensor-parallel ranks, load_file decides how operators are
/// split: decide_splits. A file that cannot be read is left to check_layout_file.
void settle_splits(Config& config, SourceMap& sources, const Site& site, Diagnostics& diagnostics);

/// With auto_parallel, replaces the keys that the search answers (plan/search/search.h);
/// load_file's operators are given to it. nullopt: another mode, or an error that is reported.
std::optional<SearchReport> settle_search(Config& config, SourceMap& sources, const Site& site,
                                          const LayoutSearcher& search, Diagnostics& diagnostics);

/// Reads load_file, if given, and compares it with the plan. Adds "strategy-file" for an unreadable
/// file, and the findings of compare_layouts.
void check_layout_file(const Config& config, const Plan& plan, const SourceMap& sources,
                       Diagnostics& diagnostics);

/// Writes save_file and the group file of `rank`, if given. Throws Error{io}, or
/// Error{usage} if there is no such rank.
void write_layout_files(const Config& config, const Plan& plan, std::int64_t rank);

/// What a rank of a run writes: the first rank save_file, every rank its group file under its own
/// name, "groups.pb" -> "groups-rank3.pb".
void write_own_layout_files(const Config& config, const Plan& plan, std::int64_t rank);

}  // namespace trainctl
