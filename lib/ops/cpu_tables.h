// The implementation of the CPU levels of this build: cpu/levels.cpp, or plain/kernels_as_cpu.cpp
// in a build without fast kernels. Internal to lib/ops and its tests.
#pragma once

#include <string>

#include "ops/cpu_level.h"
#include "ops/kernels.h"

namespace trainctl {

/// The complete table of a level of this build.
const Kernels& kernels_of(CpuLevel level);

/// What the processor lacks for the lowest level, "avx2, fma"; "" if nothing.
std::string lacking_cpu_features();

}  // namespace trainctl
