// Assembles the whole model on rank 0 from the masters that all ranks own, for export.
#pragma once

#include "comm/group.h"
#include "device/slab.h"
#include "engine/parameters/param_store.h"
#include "plan/plan.h"

namespace trainctl {

/// On rank 0, every whole parameter of the model, by its name, in fp32 host memory; on other ranks
/// an empty slab. Collective over `everyone`, the group of all ranks; uses only messages. Throws
/// Error{peer} if a shard does not arrive within `deadline_seconds`.
Slab gather_parameters(const Plan& plan, const ParamStore& store, Group& everyone,
                       double deadline_seconds);

}  // namespace trainctl
