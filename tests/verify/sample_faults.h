// Mistakes in what ranks exchange, for the tests that plant them.
#pragma once

#include "faulty_world.h"
#include "verify/verify.h"

namespace trainctl {

/// One mistake on each rank.
Faults on_all(int ranks, GroupFault fault);
Faults on_one(const GroupFault& fault);

/// In a collective of the group "layers tp" (GroupFault::occurrence).
GroupFault layers_tp(GroupOperation operation, int occurrence, const FaultAction& act);

/// The two halves of a result the wrong way round.
void swap_halves(const Tensor& result);
void clear(const Tensor& values);

}  // namespace trainctl
