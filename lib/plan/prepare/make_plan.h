// Makes a plan from a configuration and the machine, and reports all errors that they have.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/tables/site.h"

namespace trainctl {

/// Checks every rule across fields and adds findings to `diagnostics`, with positions from
/// `sources`. The plan is empty if `diagnostics` then has errors. Throws Error{internal} if the
/// schedule breaks its own rules.
Plan make_plan(const Config& config, const Site& site, const SourceMap& sources,
               Diagnostics& diagnostics);

// Drafts of layouts, which a search compares before it plans one of them.

/// The parts of a plan that give the time of a step without recomputation: tables and refined rows
/// of each stage, and memory without activations. Activations are not placed, rows not proven.
/// recompute.select auto must be off. Reports errors for broken rules between fields.
Plan draft_plan(const Config& config, const Site& site, const SourceMap& sources,
                Diagnostics& diagnostics);

}  // namespace trainctl
