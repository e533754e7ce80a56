// The fast CPU kernels, of the entries of Kernels that cpu/kernels.cpp does not leave to others;
// each is compiled once for every level (level.h). Arguments were checked by the front doors; the
// work runs in the calling thread and those that help it and is done on return. Internal to
// lib/ops.
#pragma once

#include "ops/kernels.h"

namespace trainctl {

#define KERNEL(entry, Args) void entry##_cpu(const OpContext& context, const Args& args);
#include "ops/kernels.def"
#undef KERNEL

}  // namespace trainctl
