// What a plan costs, from its tables alone: bytes on a rank, floating-point operations and traffic
// of a step; and the hash by which ranks compare their plans.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "plan/plan.h"

namespace trainctl {

/// Sums the tables of `plan` (all but its memory must be filled in).
MemoryEstimate estimate_memory(const Plan& plan, const Config& config);

/// Bytes that a rank holds for `rows`, each padded to 64 bytes as device/slab.h places them:
/// batch and kept rows once per slot, transient rows once.
std::int64_t activation_bytes(const std::vector<ActivationSpec>& rows, int slots);

/// `tokens`: of one step over all ranks. Forward and backward: three times the forward.
FlopsEstimate estimate_flops(const ModelShape& model, std::int64_t tokens);

/// Gradient traffic of one rank in one step.
std::vector<CollectiveUse> estimate_communication(const Plan& plan);

/// FNV-1a over everything that ranks must agree on: sizes, table rows, actions, and the settings
/// that change results. Paths, logging and deadlines are not in it.
std::uint64_t plan_hash(const Plan& plan, const Config& config);

}  // namespace trainctl
