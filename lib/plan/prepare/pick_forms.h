// Picks forms for recompute.select auto: what each layer keeps such that a rank's memory suffices.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// Picks for each stage the fastest forms with which a rank's memory (MemoryEstimate::device) is at
/// most recompute.memory_limit. The candidates of each layer are all sets of parts. Times and kept
/// bytes of layers are additive, so dynamic programming over the layers gives the choices that no
/// other beats in both. Candidates are sized in the order of time until one fits, since allocation
/// also depends on how rows share memory. Error "recompute-memory" with the arithmetic if none
/// fits. With picks_host, also picks how many of the stage's first layers are on the host, which
/// has its own limit; memory_limit is then that of the device.
void pick_forms(Plan& plan, const Config& config, const SourceMap& sources,
                Diagnostics& diagnostics);

}  // namespace trainctl
