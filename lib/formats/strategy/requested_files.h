// Strategy and group files that a configuration names (docs/strategy-files.md): files that decide
// the splits of operators, and files that a run compares or writes.
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

/// A strategy file as it was read.
struct LoadedSplits {
  std::string name;       // name of the file
  std::string_view text;  // JSON text, for the places of operators; empty for protobuf
  const PlacementFile& layouts;
};

/// Sets parallel.operator_splits to the splits of the file's operators over `mesh.tp` ranks; other
/// operators are split by features. Reports "strategy-operators" for an operator that is split in
/// none of the three ways, for two operators that must be split alike but are not, and for a
/// contradiction to the configuration.
void decide_splits(const LoadedSplits& loaded, const Mesh& mesh, const ModelShape& model,
                   Config& config, SourceMap& sources, Diagnostics& diagnostics);

/// The number of tensor-parallel ranks that the file's operators assume, where a stage has `ranks`
/// per context-parallel rank; none without operators. Reports "strategy-operators" if two operators
/// disagree, if parts are not `ranks`, or if all are split by tokens, which leaves it open.
std::optional<std::int64_t> shared_ranks(const LoadedSplits& loaded, const ModelShape& model,
                                         std::int64_t ranks, std::int64_t context_parallel,
                                         const SourceMap& sources, Diagnostics& diagnostics);

/// With semi_auto_parallel and several tensor-parallel ranks, load_file decides the splits of
/// operators (decide_splits). check_layout_file reports an unreadable file.
void settle_splits(Config& config, SourceMap& sources, const Site& site, Diagnostics& diagnostics);

/// With auto_parallel, replaces the keys found by the search (plan/search/search.h), which gets the
/// splits of load_file. nullopt in other modes, or after an error was reported.
std::optional<SearchReport> settle_search(Config& config, SourceMap& sources, const Site& site,
                                          const ArrangementSearcher& search,
                                          Diagnostics& diagnostics);

/// Reads load_file, if it is set, and compares it with the plan. Reports "strategy-file" for an
/// unreadable file, and the findings of compare_layouts.
void check_layout_file(const Config& config, const Plan& plan, const SourceMap& sources,
                       Diagnostics& diagnostics);

/// Writes save_file and the group file of `rank`, if these keys are set. Throws Error{io}, or
/// Error{usage} if there is no such rank.
void write_layout_files(const Config& config, const Plan& plan, std::int64_t rank);

/// Writes the files of one rank in a run: save_file on the first rank, and on every rank a group
/// file named by the rank: "groups.pb" -> "groups-rank3.pb".
void write_own_layout_files(const Config& config, const Plan& plan, std::int64_t rank);

}  // namespace trainctl
