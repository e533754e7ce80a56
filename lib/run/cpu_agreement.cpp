#include "run/cpu_agreement.h"

#include <algorithm>

namespace trainctl {

CpuLevel agree_on_cpu_level(Group& world) {
  const auto levels = gather_values(world, static_cast<double>(cpu_level()));
  const auto lowest = static_cast<CpuLevel>(*std::min_element(levels.begin(), levels.end()));
  if (lowest != cpu_level()) set_cpu_level(lowest);
  return lowest;
}

}  // namespace trainctl
