// The fast CPU kernels, for all entries of Kernels except those that cpu/kernels.cpp replaces. Each
// is compiled once for every level (level.h). The callers have checked the arguments. A kernel runs
// in the calling thread and its helper threads, and has finished when it returns. Internal to
// lib/ops.
#pragma once

#include "ops/kernels.h"

namespace trainctl {

#define KERNEL(entry, Args) void entry##_cpu(const OpContext& context, const Args& args);
#include "ops/kernels.def"
#undef KERNEL

}  // namespace trainctl
