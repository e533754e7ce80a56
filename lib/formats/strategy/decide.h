// The splits of operators that a strategy file asks for (docs/strategy-files.md).
#pragma once

#include <string>
#include <string_view>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "formats/strategy/file.h"

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

}  // namespace trainctl
