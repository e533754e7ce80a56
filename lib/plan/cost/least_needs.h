// What a layout needs at least: seconds of a step, and bytes of a rank. A search orders layouts by
// it (docs/planning.md).
#pragma once

#include <cstdint>
#include <optional>

#include "config/schema/config.h"
#include "plan/plan.h"
#include "plan/prices/machine.h"

namespace trainctl {

/// Of a draft (plan/prepare/draft_plan.h), whichever parts of its layers are made again. Every
/// value is at most that of a whole plan of the same layout.
struct LeastNeeds {
  double seconds = 0;        // of a step that stays within the limit
  std::int64_t bytes = 0;    // of the fullest rank on its device, in the forms of the draft
  std::int64_t lacking = 0;  // bytes over the limit where as much as possible is made again
  int stage = 0;             // that lacks them
  bool repeats = false;      // something must be made again
};

/// With `limit` bytes of a rank; none: the forms are those of the draft. The bytes of these are
/// counted as they will be laid out. Where they are too many, a stage keeps at its fullest moment
/// what its schedule says, has memory of its own for what its largest layer makes again, and the
/// forms of its layers are the cheapest that save enough, where a part of a layer's micro-batch may
/// have another form than the rest. From its
/// first B on a stage has all its work and these repeats to do, and behind its last one the stages
/// before it have theirs.
LeastNeeds least_needs(const Plan& draft, const Config& config, const Machine& machine,
                       std::optional<std::int64_t> limit);

}  // namespace trainctl
