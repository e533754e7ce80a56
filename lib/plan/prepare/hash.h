// The hash with which ranks compare their plans before the first step.
#pragma once

#include <cstdint>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// FNV-1a over everything on which ranks must agree: sizes, table rows, actions, and all settings
/// except listed ones, such as paths, messages and deadlines.
std::uint64_t plan_hash(const Plan& plan, const Config& config);

}  // namespace trainctl
