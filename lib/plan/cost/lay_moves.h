// The rows of a stage with what they gather, free and sum, and the memory that these moves share.
#pragma once

#include "plan/plan.h"
#include "plan/rules/resolve.h"

namespace trainctl {

/// Fills in sums, gathers, reads, rings and actions of a stage, whose tables, schedule and forms
/// are there. `input` has the forms. `like`: see lay_out.
void lay_moves(const Plan& plan, const ScheduleInput& input, const MoveConfig& config,
               StagePlan& rows, const StagePlan* like);

}  // namespace trainctl
