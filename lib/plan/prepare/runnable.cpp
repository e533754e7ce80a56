#include "plan/prepare/runnable.h"

#include <algorithm>

#include "config/support/standing.h"

namespace trainctl {

namespace {

bool any_empty(const StageMap& map) {
  return std::any_of(map.all.begin(), map.all.end(),
                     [](const auto& chunk) { return chunk.first_unit == chunk.end_unit; });
}

}  // namespace

void check_runnable(const Plan& plan, const SourceMap& sources, Severity severity,
                    Diagnostics& diagnostics) {
  const auto refuse = [&](const char* path, const std::string& what) {
    diagnostics.add(
        {severity, "not-built", path, "not built yet: " + what, today(path), sources.find(path)});
  };
  if (plan.map.route == ChunkRoute::down_and_up && any_empty(plan.map)) {
    refuse("parallel.pipeline.layout", "a chunk that holds nothing, in a schedule down and up");
  }
}

}  // namespace trainctl
