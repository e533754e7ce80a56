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

/// The lower bounds of a draft (plan/prepare/make_plan.h), whichever parts of its layers are
/// recomputed. Every value is at most that of a whole plan of the same layout.
struct LeastNeeds {
  double seconds = 0;        // seconds of a step within the limit of memory
  std::int64_t bytes = 0;    // bytes on the device of the fullest rank, with the forms of the draft
  std::int64_t lacking = 0;  // bytes above the limit with as much recomputation as possible
  int stage = 0;             // stage to which `lacking` refers; without a limit the fullest
  bool repeats = false;      // some parts must be recomputed
};

/// The least needs with `limit` bytes of a rank; without a limit the forms are those of the draft.
/// The bytes of these are counted as they will be laid out. Where they are too many, a stage keeps
/// at its fullest moment the activations that its schedule says and has memory of its own for the
/// parts that its largest layer recomputes. The forms of its layers are then the cheapest that save
/// enough, where a part of a layer's micro-batch may have another form than the rest. From its
/// first B on a stage has all its work and these repeats to do, and behind its last one the stages
/// before it have theirs. With one chunk a stage the first B waits for the repeats of the stages
/// behind it.
LeastNeeds min_needs(const Plan& draft, const Config& config, const Machine& machine,
                     std::optional<std::int64_t> limit);
/// As above, for each of several limits.
std::vector<LeastNeeds> min_needs(const Plan& draft, const Config& config, const Machine& machine,
                                  std::span<const std::int64_t> limits);

}  // namespace trainctl
