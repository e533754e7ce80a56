// The forms of recompute.select auto: what each layer keeps so that a rank's memory suffices.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// For each stage the forms that take the least time among those with which a rank's memory, as
/// MemoryEstimate::device, does not exceed recompute.memory_limit. The candidates of each layer are
/// all sets of parts; the times and kept bytes of layers add up, so dynamic programming over the
/// layers gives the choices that no other beats in both. They are laid out in the order of their
/// times until one fits: what is allocated also depends on how rows share memory. Error
/// "recompute-memory" with the arithmetic where none fits. With picks_host, also how many of the
/// first layers of the stage are on the host, which has a limit of its own; the other limit is then
/// that of the device.
void pick_forms(Plan& plan, const Config& config, const SourceMap& sources,
                Diagnostics& diagnostics);

}  // namespace trainctl
