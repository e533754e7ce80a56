// Replaces cpu/levels.cpp in builds without the fast kernels, so that the CPU uses the plain
// kernels.
#include "ops/cpu_level.h"
#include "ops/plain/kernels.h"

namespace trainctl {

std::vector<CpuLevel> available_cpu_levels() { return {CpuLevel::plain}; }

const Kernels& kernels_of(CpuLevel) {
  static constexpr Kernels kernels = plain_table("cpu");
  return kernels;
}

std::string lacking_cpu_features() { return ""; }

}  // namespace trainctl
