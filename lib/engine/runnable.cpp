#include "engine/runnable.h"

#include <algorithm>

namespace trainctl {

void check_runnable(const Plan& plan, const SourceMap& sources, Diagnostics& diagnostics) {
  const char* path = "parallel.pipeline.layout";
  const auto refuse = [&](const std::string& what, const std::string& help) {
    diagnostics.add(
        {Severity::error, "not-built", path, "not built yet: " + what, help, sources.find(path)});
  };
  if (plan.map.chunks > 1) {
    refuse("layouts with " + std::to_string(plan.map.chunks) + " chunks for each stage",
           "the layout could have " + std::to_string(plan.map.stages) + " parts");
    return;
  }
  const bool empty = std::any_of(plan.map.all.begin(), plan.map.all.end(), [](const auto& chunk) {
    return chunk.first_unit == chunk.end_unit;
  });
  if (empty) refuse("a stage that holds nothing", "each part of the layout could have a t");
}

}  // namespace trainctl
