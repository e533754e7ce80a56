// Layouts that a search compares, before it plans one of them.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/tables/site.h"

namespace trainctl {

/// The part of a plan that tells how long a step takes where nothing is recomputed: tables and
/// refined rows of each stage, and its memory without activations. They have no places, and no row
/// is proven. recompute.select auto must be off. Refuses what the rules between fields refuse.
Plan draft_plan(const Config& config, const Site& site, const SourceMap& sources,
                Diagnostics& diagnostics);

}  // namespace trainctl
