// What the passes of one block exchange, and what it takes to make parts of its forward again.
#pragma once

#include "plan/cost/step_time.h"
#include "plan/plan.h"
#include "plan/tables/recompute_form.h"

namespace trainctl {

/// Seconds of what F, B and W of a block exchange with one micro-batch, without a ring of keys.
struct BlockWire {
  double waits = 0;  // for collectives, without what goes on beside products
  double rows = 0;   // to experts of other ranks and back, all of it
};
/// Of a rank of `stage`, one of plan.stages; the mean of its micro-batches.
BlockWire block_wire(const Plan& plan, const StagePlan& stage, int unit, const Rates& rates);

/// Of one rank, for the R row of the block `unit` with one micro-batch.
struct RepeatCost {
  double flops = 0;  // of products, attention under the causal mask; a router's are not counted
  double bytes = 0;  // written and read once
};
RepeatCost repeat_cost(const Plan& plan, int unit, const BlockForm& form);

/// Seconds of that row, without its collectives.
double repeat_seconds(const RepeatCost& cost, const Rates& rates);

/// What the row takes on a rank of stage number `stage`.
RepeatPrice price_repeat(const Plan& plan, int stage, int unit, const BlockForm& form,
                         const Rates& rates);

}  // namespace trainctl
