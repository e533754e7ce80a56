// The needs of a layout in a search, from a draft or from its complete plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/prices/machine.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

/// The code of a layout that needs more than the memory limit; other codes are those of rules.
inline constexpr const char* out_of_memory = "memory";

struct ArrangementNeeds {
  std::string code, message;  // why the layout is refused; empty if it is not
  std::int64_t lacking = 0;   // bytes over the limit
  double seconds = 0;         // seconds of a step; for a draft, a lower bound
  std::int64_t bytes = 0;     // bytes of the fullest rank; for a draft, with its own forms
  bool repeats = false;       // for a draft: some activations must be recomputed
  int stage = -1;             // fullest stage; of a draft without enough memory, the failing one
};

std::int64_t bytes_of_gib(double gib);

/// The refusal of a layout that lacks these bytes within a limit: "`what`... per rank, ... more
/// than the limit".
ArrangementNeeds without_memory(std::int64_t limit, const std::string& what, std::int64_t lacking);

/// The least needs within each limit [GiB], with any recomputation that the search may choose.
std::vector<ArrangementNeeds> draft_layout(const ArrangementSearch& search, const Machine& machine,
                                           const RunArrangement& layout,
                                           std::span<const double> limits);
/// The needs of a planned layout; if its plan does not fit, `lacking` is above 0 and `code` empty.
ArrangementNeeds plan_layout(const ArrangementSearch& search, const FoundArrangement& layout);

}  // namespace trainctl
