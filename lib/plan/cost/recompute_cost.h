// What it takes to make parts of a block's forward again.
#pragma once

#include "plan/cost/step_time.h"
#include "plan/plan.h"
#include "plan/tables/recompute_form.h"

namespace trainctl {

/// Of one rank, for the R row of the block `unit` with one micro-batch.
struct RepeatCost {
  double flops = 0;  // of products, attention under the causal mask
  double bytes = 0;  // written and read once
};
RepeatCost repeat_cost(const Plan& plan, int unit, const BlockForm& form);

/// Seconds of that row, without its collectives.
double repeat_seconds(const RepeatCost& cost, const Rates& rates);
/// Seconds of its collectives.
double repeat_wire_seconds(const Plan& plan, int unit, const BlockForm& form, const Rates& rates);

}  // namespace trainctl
