// Strategy and group files that a configuration asks for (docs/strategy-files.md): the splits of
// operators that they decide, and the files that a run compares with and writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "formats/strategy/file.h"
#include "plan/plan.h"
#include "plan/search/given.h"
#include "plan/search/search.h"

namespace trainctl {

/// A strategy file, as it was read.
struct LoadedSplits {
  std::string name;       // of the file
  std::string_view text;  // JSON, in which operators have places; empty for protobuf
  const PlacementFile& layouts;
};

/// Sets parallel.operator_splits to what the file's operators say over `mesh.tp` ranks; operators
/// that it lacks stay by features. Adds "strategy-operators" where an operator is split in none of
/// the three ways, where two that must be split alike are not, and where the configuration asks for
/// another split.
void decide_splits(const LoadedSplits& loaded, const Mesh& mesh, const ModelShape& model,
                   Config& config, SourceMap& sources, Diagnostics& diagnostics);

/// The tensor-parallel ranks that the file's operators are for, where a stage has `ranks` for each
/// context-parallel one; none where it has none. Adds "strategy-operators" where two disagree,
/// where the parts of one are not `ranks`, and where all are split by tokens, which leaves it open.
std::optional<std::int64_t> shared_ranks(const LoadedSplits& loaded, const ModelShape& model,
                                         std::int64_t ranks, std::int64_t context_parallel,
                                         const SourceMap& sources, Diagnostics& diagnostics);

/// With semi_auto_parallel and several tensor-parallel ranks, load_file decides how operators are
/// split: decide_splits. A file that cannot be read is left to check_layout_file.
void settle_splits(Config& config, SourceMap& sources, const Site& site, Diagnostics& diagnostics);

/// With auto_parallel, replaces the keys that the search answers (plan/search/search.h);
/// load_file's operators are given to it. nullopt: another mode, or an error that is reported.
std::optional<SearchReport> settle_search(Config& config, SourceMap& sources, const Site& site,
                                          const StrategySearcher& search, Diagnostics& diagnostics);

/// Reads load_file, if given, and compares it with the plan. Adds "strategy-file" for an unreadable
/// file, and the findings of compare_layouts.
void check_layout_file(const Config& config, const Plan& plan, const SourceMap& sources,
                       Diagnostics& diagnostics);

/// Writes save_file and the group file of `rank`, if given. Throws Error{io}, or
/// Error{usage} if there is no such rank.
void write_layout_files(const Config& config, const Plan& plan, std::int64_t rank);

/// Writes the files of one rank of a run: the first rank save_file, every rank its group file under
/// its own name, "groups.pb" -> "groups-rank3.pb".
void write_own_layout_files(const Config& config, const Plan& plan, std::int64_t rank);

}  // namespace trainctl
