// What a plan may contain that the engine cannot carry out and that no single key says.
#pragma once

#include "config/report/diagnostics.h"
#include "plan/plan.h"

namespace trainctl {

/// Adds "not-built" errors. The keys themselves are judged by config/support/standing.h.
void check_runnable(const Plan& plan, const SourceMap& sources, Diagnostics& diagnostics);

}  // namespace trainctl
