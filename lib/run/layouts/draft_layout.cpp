#include "run/layouts/draft_layout.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "plan/cost/min_needs.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

constexpr const char* failed = "internal";

bool refused(const Diagnostics& found, LayoutNeeds& needs) {
  for (const Diagnostic& one : found.list()) {
    if (one.severity != Severity::error || !needs.code.empty()) continue;
    needs.code = one.code;
    needs.message = one.message;
  }
  return !needs.code.empty();
}

LayoutNeeds drafted_needs(const LayoutSearch& search, const Machine& machine,
                          const FoundLayout& layout) {
  const Config config = config_of(search, layout);
  LayoutNeeds needs;
  Diagnostics found;
  const Plan draft = prepare_draft(config, search.sources, search.site, found);
  if (refused(found, needs)) return needs;
  // The needs of a stage do not count bytes on the host.
  const bool counts = free_keys(search).recompute && !search.config.offload.enable;
  const std::int64_t limit = limit_bytes(search);
  const LeastNeeds least =
      min_needs(draft, config, machine, counts ? std::optional(limit) : std::nullopt);
  needs.seconds = least.seconds;
  needs.bytes = least.bytes;
  needs.repeats = least.repeats;
  needs.stage = least.stage;
  needs.lacking = counts ? least.lacking : std::max<std::int64_t>(0, least.bytes - limit);
  if (needs.lacking == 0) return needs;
  LayoutNeeds lacks = without_memory(
      search, "stage " + std::to_string(least.stage) + " needs at least ", needs.lacking);
  lacks.stage = least.stage;
  return lacks;
}

LayoutNeeds planned_needs(const LayoutSearch& search, const FoundLayout& layout) {
  const Config config = config_of(search, layout);
  LayoutNeeds needs;
  Diagnostics found;
  const Plan plan = prepare(config, search.sources, search.site, Purpose::plan, found);
  if (refused(found, needs)) return needs;
  const auto fullest = std::ranges::max_element(
      plan.stages, {}, [](const StagePlan& stage) { return stage.memory.device(); });
  needs.seconds = plan.time->step();
  needs.bytes = plan.max_memory().device();
  needs.stage = static_cast<int>(fullest - plan.stages.begin());
  needs.lacking = std::max<std::int64_t>(0, needs.bytes - limit_bytes(search));
  return needs;
}

}  // namespace

std::int64_t limit_bytes(const LayoutSearch& search) {
  return static_cast<std::int64_t>(search.memory_limit * (std::int64_t{1} << 30));
}

LayoutNeeds without_memory(const LayoutSearch& search, const std::string& what,
                           std::int64_t lacking) {
  return {.code = out_of_memory,
          .message = what + format_bytes(limit_bytes(search) + lacking) + " per rank, " +
                     format_bytes(lacking) + " more than the limit",
          .lacking = lacking};
}

LayoutNeeds draft_layout(const LayoutSearch& search, const Machine& machine,
                         const FoundLayout& layout) {
  try {
    return drafted_needs(search, machine, layout);
  } catch (const Error& error) {
    return {.code = failed, .message = error.what()};
  }
}

LayoutNeeds plan_layout(const LayoutSearch& search, const FoundLayout& layout) {
  try {
    return planned_needs(search, layout);
  } catch (const Error& error) {
    return {.code = failed, .message = error.what()};
  }
}

}  // namespace trainctl
