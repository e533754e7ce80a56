// Products on the CPU: which way each goes at each level. Compiled for every processor; the ways
// themselves are kernels of a level (cpu/level.h) or oneDNN. Internal to lib/ops.
#pragma once

#include "ops/cpu_level.h"
#include "ops/kernels.h"

namespace trainctl {

/// The kernel that multiplies at `level`, one of v3 and above. Equal calls always go the same way:
/// nothing is timed, so that equal runs stay bit-identical.
Kernel<Matmul> matmul_kernel(CpuLevel level);

}  // namespace trainctl
