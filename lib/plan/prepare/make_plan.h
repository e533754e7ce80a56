// From a configuration and the machine to a plan, with everything that is wrong with the two.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/tables/site.h"

namespace trainctl {

/// Checks every rule across fields, adding to `diagnostics` with positions from `sources`. The plan
/// is usable only if `diagnostics` then has no errors; otherwise it is empty. Throws
/// Error{internal} if the schedule breaks its own rules.
Plan make_plan(const Config& config, const Site& site, const SourceMap& sources,
               Diagnostics& diagnostics);

// Layouts that a search compares, before it plans one of them.

/// The part of a plan that tells how long a step takes where nothing is recomputed: tables and
/// refined rows of each stage, and its memory without activations. They have no places, and no row
/// is proven. recompute.select auto must be off. Refuses what the rules between fields refuse.
Plan draft_plan(const Config& config, const Site& site, const SourceMap& sources,
                Diagnostics& diagnostics);

}  // namespace trainctl
