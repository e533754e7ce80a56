// Suggested values that have been tried.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/tables/site.h"

namespace trainctl {

/// Of the values that the errors suggest ("set num_layers to 4 or 6", "start 8 ranks") keeps those
/// with which the error goes away and no other comes. Words and values that belong together stay
/// as they are.
void keep_proven_values(const Config& config, const SourceMap& sources, const Site& site,
                        Diagnostics& diagnostics);

}  // namespace trainctl
