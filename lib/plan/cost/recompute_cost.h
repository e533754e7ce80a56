// The exchanges in the passes of one block, and the cost of recomputing parts of its forward.
#pragma once

#include "plan/cost/step_time.h"
#include "plan/plan.h"
#include "plan/tables/recompute_form.h"

namespace trainctl {

/// Seconds of what F, B and W of a block exchange with one micro-batch, without a ring of keys.
struct BlockWire {
  double waits = 0;  // for collectives, without those that overlap with products
  double rows = 0;   // to experts of other ranks and back, all of it
};
/// The exchanges on a rank of `stage`, one of plan.stages; the mean of its micro-batches.
BlockWire block_wire(const Plan& plan, const StagePlan& stage, int unit, const Rates& rates);

/// The work of one rank for the R row of the block `unit` with one micro-batch.
struct RepeatCost {
  double flops = 0;  // of products, attention under the causal mask; a router's are not counted
  double bytes = 0;  // written and read once
};
RepeatCost repeat_cost(const Plan& plan, int unit, const BlockForm& form);

/// Seconds of that row, without its collectives.
double repeat_seconds(const RepeatCost& cost, const Rates& rates);

/// The price of the row on a rank of stage number `stage`.
RepeatPrice price_repeat(const Plan& plan, int stage, int unit, const BlockForm& form,
                         const Rates& rates);

}  // namespace trainctl
