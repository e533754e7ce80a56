// The rates of a rank, measured while all ranks are busy: the basis for a plan's time estimate if
// the config does not give them.
#pragma once

#include <optional>

#include "comm/group.h"
#include "comm/nccl/device_world.h"
#include "ops/context.h"
#include "plan/cost/step_time.h"

namespace trainctl {

/// Rates::matmul_flops, by each rank's threads or device on square operands in `dtype`. A few dozen
/// ms, more where ranks share cores. Collective over all ranks.
double measure_products(Group& everyone, const OpContext& context, DType dtype);

/// All rates, `matmul_flops` being known. Messages are those of sums over all ranks; of one rank,
/// which sends none, the bandwidth is its memory's. None where a rank has no memory for it; that
/// rank says so. Collective over all ranks.
std::optional<Rates> measure_rates(Group& everyone, const DeviceWorld& world, double matmul_flops);

}  // namespace trainctl
