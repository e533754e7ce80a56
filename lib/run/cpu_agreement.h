// The CPU level that the ranks of a run compute with: replicas stay equal only where all ranks use
// the same instructions.
#pragma once

#include "comm/group.h"
#include "ops/cpu_level.h"

namespace trainctl {

/// Sets this process to the lowest level among the ranks of `world` and returns it. Collective;
/// call it before the first operation. Throws Error{unavailable} where this machine lacks it.
CpuLevel agree_on_cpu_level(Group& world);

}  // namespace trainctl
