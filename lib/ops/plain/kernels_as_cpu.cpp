// Linked in place of cpu/levels.cpp where the fast kernels are left out: the CPU runs the plain
// ones.
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
