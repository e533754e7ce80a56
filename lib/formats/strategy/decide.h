// The splits of operators that a strategy file asks for (docs/strategy-files.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "formats/strategy/file.h"
#include "plan/search/given.h"

namespace trainctl {

/// A strategy file, as it was read.
struct LoadedSplits {
  std::string name;       // of the file
  std::string_view text;  // JSON, in which operators have places; empty for protobuf
  const LayoutFile& layouts;
};

/// Sets parallel.operator_splits to what the file's operators say over `mesh.tp` ranks; operators
/// that it lacks stay by features. Adds "strategy-operators" where an operator is split in none of
/// the three ways, where two that must be split alike are not, and where the configuration asks for
/// another split.
void decide_splits(const LoadedSplits& loaded, const Mesh& mesh, const ModelShape& model,
                   Config& config, SourceMap& sources, Diagnostics& diagnostics);

/// The same for a search: operators that the file lacks keep what `splits` says of them.
void join_splits(const LoadedSplits& loaded, const Mesh& mesh, const ModelShape& model,
                 SearchedSplits& splits, SourceMap& sources, Diagnostics& diagnostics);

/// The tensor-parallel ranks that the file's operators are for, where a stage has `ranks` for each
/// context-parallel one; none where it has none. Adds "strategy-operators" where two disagree,
/// where the parts of one are not `ranks`, and where all are split by tokens, which leaves it open.
std::optional<std::int64_t> shared_ranks(const LoadedSplits& loaded, const ModelShape& model,
                                         std::int64_t ranks, std::int64_t context_parallel,
                                         const SourceMap& sources, Diagnostics& diagnostics);

}  // namespace trainctl
