// What this machine can do at best, measured now: the other side of every ratio that we print.
#pragma once

#include "base/dtype.h"
#include "ops/context.h"

namespace trainctl {

/// FLOP/s of the library's product on square operands in `dtype`, by this rank's threads; takes
/// about 30 ms.
double matmul_ceiling(const OpContext& context, DType dtype);
/// Bytes per second read and written by a copy that is larger than the caches, by this rank's
/// threads.
double memory_ceiling();

}  // namespace trainctl
