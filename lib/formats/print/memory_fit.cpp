#include "formats/print/memory_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/units.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

constexpr std::array<double, 16> usual_sizes{1,  2,  4,  8,  12, 16,  24,  32,
                                             40, 48, 64, 80, 96, 128, 192, 256};

double usual_size(double needed) {
  const auto found = std::find_if(usual_sizes.begin(), usual_sizes.end(),
                                  [needed](double size) { return size >= needed; });
  return found == usual_sizes.end() ? std::ceil(needed) : *found;
}

}  // namespace

MemoryFit memory_fit(const PrintInput& input) {
  const auto needed = static_cast<double>(input.plan.most_memory().device());
  MemoryFit fit;
  if (input.memory_limit) {
    fit.gibibytes = *input.memory_limit;
    fit.source = "--memory-limit";
  } else if (input.config != nullptr && input.config->recompute.memory_limit) {
    fit.gibibytes = *input.config->recompute.memory_limit;
    fit.source = "recompute.memory_limit";
  } else if (input.config != nullptr && input.config->cluster.device_memory &&
             input.plan.device == DeviceKind::cuda) {
    fit.gibibytes = *input.config->cluster.device_memory;
    fit.source = "cluster.device_memory";
  } else if (input.plan.device_gib && input.plan.device == DeviceKind::cuda) {
    fit.gibibytes = *input.plan.device_gib;
    fit.source = "cluster.device";
  } else {
    fit.gibibytes = usual_size(needed / gibibyte);
  }
  // A limit beyond 2^62 bytes is as good as none.
  const double free = std::min(fit.gibibytes * gibibyte - needed, 4.6e18);
  fit.free = static_cast<std::int64_t>(std::floor(free));
  return fit;
}

std::string fit_text(const MemoryFit& fit) {
  const std::string size = printed("%.4g", fit.gibibytes) + " GiB";
  const std::string why = fit.source.empty() ? "the least usual size that does" : fit.source;
  if (fit.fits()) return "fits in " + size + ", " + format_bytes(fit.free) + " free (" + why + ")";
  return "does not fit in " + size + ": " + format_bytes(-fit.free) + " too much (" + why + ")";
}

}  // namespace trainctl
