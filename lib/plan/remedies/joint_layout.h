// When parallel sizes and batch break rules, sizes that keep all rules together: a fix of one rule
// alone may break another.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/tables/site.h"

namespace trainctl {

/// Adds to the help of the first error about sizes of the layout or the batch the nearest sizes
/// that satisfy every rule, if there are some: as few changed keys as possible, then close to the
/// given values, tensor parallelism within a host first. Where those change the batch, also the
/// nearest parallel sizes for the batch as it is.
void suggest_joint_layout(const Config& config, const Site& site, Diagnostics& diagnostics);

}  // namespace trainctl
