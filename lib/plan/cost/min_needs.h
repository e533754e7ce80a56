// Lower bounds of the seconds of a step and the bytes of a rank for a layout. A search orders
// layouts by them (docs/planning.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/prices/machine.h"

namespace trainctl {

/// Lower bounds from a draft (plan/prepare/make_plan.h), for any choice of recomputed parts. No
/// value exceeds that of the whole plan of the same layout.
struct LeastNeeds {
  double seconds = 0;        // seconds of a step within the limit of memory
  std::int64_t bytes = 0;    // bytes on the device of the fullest rank, with the forms of the draft
  std::int64_t lacking = 0;  // bytes above the limit with as much recomputation as possible
  int stage = 0;             // stage to which `lacking` refers; without a limit the fullest
  bool repeats = false;      // some parts must be recomputed
};

/// The least needs if a rank has `limit` bytes; without a limit, those with the draft's forms.
/// Bytes with these forms are counted as the plan would place them. If they exceed the limit, a
/// stage holds at its fullest moment the activations that its schedule keeps, and separate memory
/// for the parts that its largest layer recomputes. Its layers get the cheapest forms that save
/// enough; a part of a layer's micro-batch may have another form than the rest. Seconds: after its
/// first B, a stage has all remaining work and the recomputation; after its last B, earlier stages
/// have theirs. With one chunk per stage, the first B also waits for the recomputation on later
/// stages.
LeastNeeds min_needs(const Plan& draft, const Config& config, const Machine& machine,
                     std::optional<std::int64_t> limit);
/// As above, for each of several limits.
std::vector<LeastNeeds> min_needs(const Plan& draft, const Config& config, const Machine& machine,
                                  std::span<const std::int64_t> limits);

}  // namespace trainctl
