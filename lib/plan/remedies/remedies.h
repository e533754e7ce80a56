// Suggestions in the help of a broken rule: values that have been tried, and sizes that satisfy all
// rules, since a fix of one rule may break another.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/tables/site.h"

namespace trainctl {

/// Keeps only those suggested values ("set num_layers to 4 or 6", "start 8 ranks") that remove the
/// error without causing another. Words, and values that must change together, are not touched.
void keep_proven_values(const Config& config, const SourceMap& sources, const Site& site,
                        Diagnostics& diagnostics);

/// Adds to the help of the first error about sizes of the layout or the batch the nearest sizes
/// that satisfy every rule, if any exist: with the fewest changed keys, then nearest to the given
/// values, preferably with tensor parallelism within a host. If the batch changes, also the nearest
/// parallel sizes for the given batch.
void suggest_joint_layout(const Config& config, const Site& site, Diagnostics& diagnostics);

}  // namespace trainctl
