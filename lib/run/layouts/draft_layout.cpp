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

bool refused(const Diagnostics& found, ArrangementNeeds& needs) {
  for (const Diagnostic& one : found.list()) {
    if (one.severity != Severity::error || !needs.code.empty()) continue;
    needs.code = one.code;
    needs.message = one.message;
  }
  return !needs.code.empty();
}

/// The needs of a draft within the limit. `counts`: whether the least needs include recomputation.
ArrangementNeeds needs_within(std::int64_t limit, const LeastNeeds& least, bool counts) {
  const std::int64_t lacking =
      counts ? least.lacking : std::max<std::int64_t>(0, least.bytes - limit);
  ArrangementNeeds needs;
  if (lacking > 0) {
    needs =
        without_memory(limit, "stage " + std::to_string(least.stage) + " needs at least ", lacking);
  }
  needs.seconds = least.seconds;
  needs.bytes = least.bytes;
  needs.repeats = least.repeats;
  needs.stage = least.stage;
  return needs;
}

std::vector<ArrangementNeeds> drafted_needs(const ArrangementSearch& search, const Machine& machine,
                                            const RunArrangement& layout,
                                            std::span<const double> limits) {
  const Config config = config_of(search, {.layout = layout});
  std::vector<ArrangementNeeds> all(limits.size());
  Diagnostics found;
  const Plan draft = prepare_draft(config, search.sources, search.site, found);
  if (refused(found, all.front())) {
    std::ranges::fill(all, ArrangementNeeds(all.front()));
    return all;
  }
  // min_needs() does not count bytes on the host.
  const bool counts = free_keys(search).recompute && !search.config.offload.enable;
  std::vector<std::int64_t> bytes;
  for (const double limit : limits) bytes.push_back(bytes_of_gib(limit));
  const std::vector<LeastNeeds> least =
      counts
          ? min_needs(draft, config, machine, bytes)
          : std::vector<LeastNeeds>(limits.size(), min_needs(draft, config, machine, std::nullopt));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = needs_within(bytes[i], least[i], counts);
  return all;
}

ArrangementNeeds planned_needs(const ArrangementSearch& search, const FoundArrangement& layout) {
  const Config config = config_of(search, layout);
  ArrangementNeeds needs;
  Diagnostics found;
  const Plan plan = prepare(config, search.sources, search.site, Purpose::plan, found);
  if (refused(found, needs)) return needs;
  const auto fullest = std::ranges::max_element(
      plan.stages, {}, [](const StagePlan& stage) { return stage.memory.device(); });
  needs.seconds = plan.time->step();
  needs.bytes = plan.max_memory().device();
  needs.stage = static_cast<int>(fullest - plan.stages.begin());
  needs.lacking = std::max<std::int64_t>(0, needs.bytes - bytes_of_gib(search.memory_limit));
  return needs;
}

}  // namespace

std::int64_t bytes_of_gib(double gib) {
  return static_cast<std::int64_t>(gib * (std::int64_t{1} << 30));
}

ArrangementNeeds without_memory(std::int64_t limit, const std::string& what, std::int64_t lacking) {
  return {.code = out_of_memory,
          .message = what + format_bytes(limit + lacking) + " per rank, " + format_bytes(lacking) +
                     " more than the limit",
          .lacking = lacking};
}

std::vector<ArrangementNeeds> draft_layout(const ArrangementSearch& search, const Machine& machine,
                                           const RunArrangement& layout,
                                           std::span<const double> limits) {
  try {
    return drafted_needs(search, machine, layout, limits);
  } catch (const Error& error) {
    return {limits.size(), {.code = failed, .message = error.what()}};
  }
}

ArrangementNeeds plan_layout(const ArrangementSearch& search, const FoundArrangement& layout) {
  try {
    return planned_needs(search, layout);
  } catch (const Error& error) {
    return {.code = failed, .message = error.what()};
  }
}

}  // namespace trainctl
