// What a plan may contain that the engine cannot carry out and that no single key says.
#pragma once

#include "config/report/diagnostics.h"
#include "plan/plan.h"

namespace trainctl {

/// Adds "not-built" findings of the given severity. Their keys are the rows `some_plans` of
/// config/support/standing.h, which judges all other keys by their values alone.
void check_runnable(const Plan& plan, const SourceMap& sources, Severity severity,
                    Diagnostics& diagnostics);

}  // namespace trainctl
