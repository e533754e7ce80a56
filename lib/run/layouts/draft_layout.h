// The needs of a layout of a search: by a draft, or by its whole plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/prices/machine.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

/// Why a layout is refused that needs more than the limit; other codes are those of rules.
inline constexpr const char* out_of_memory = "memory";

struct StrategyNeeds {
  std::string code, message;  // why it is refused; "": it is not
  std::int64_t lacking = 0;   // bytes over the limit
  double seconds = 0;         // of a step; of a draft: at least
  std::int64_t bytes = 0;     // of the fullest rank; of a draft in its own forms
  bool repeats = false;       // of a draft: something must be recomputed
  int stage = -1;             // the fullest; of a draft that lacks memory the one that lacks it
};

std::int64_t bytes_of_gib(double gib);

/// The refusal of a layout that lacks these bytes within a limit: "`what`... per rank, ... more
/// than the limit".
StrategyNeeds without_memory(std::int64_t limit, const std::string& what, std::int64_t lacking);

/// At least, whatever is recomputed where that is free, within each of the limits (GiB).
std::vector<StrategyNeeds> draft_layout(const StrategySearch& search, const Machine& machine,
                                        const RunStrategy& layout, std::span<const double> limits);
/// As it is planned; `lacking` may be above 0 without a code.
StrategyNeeds plan_layout(const StrategySearch& search, const FoundStrategy& layout);

}  // namespace trainctl
