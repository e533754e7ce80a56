// Suggestions in the help of a broken rule: values that have been tried, and sizes with which all
// rules hold, since a fix of one rule alone may break another.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/tables/site.h"

namespace trainctl {

/// Keeps only those values of the errors' suggestions ("set num_layers to 4 or 6", "start 8 ranks")
/// with which the error goes away and no other comes. Words and values that belong together stay
/// as they are.
void keep_proven_values(const Config& config, const SourceMap& sources, const Site& site,
                        Diagnostics& diagnostics);

/// Adds to the help of the first error about sizes of the layout or the batch the nearest sizes
/// that satisfy every rule, if there are some: as few changed keys as possible, then close to the
/// given values, tensor parallelism within a host first. Where those change the batch, also the
/// nearest parallel sizes for the batch as it is.
void suggest_joint_layout(const Config& config, const Site& site, Diagnostics& diagnostics);

}  // namespace trainctl
