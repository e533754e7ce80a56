// The hash by which ranks compare their plans before the first step.
#pragma once

#include <cstdint>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// FNV-1a over everything that ranks must agree on: sizes, table rows, actions, and the settings
/// that change results. Paths, logging and deadlines are left out.
std::uint64_t plan_hash(const Plan& plan, const Config& config);

}  // namespace trainctl
