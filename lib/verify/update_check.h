// The update that a rank's optimizer has made of the recorded gradients, compared with the same
// update in double.
#pragma once

#include <cstdint>
#include <span>

#include "config/schema/config.h"
#include "engine/parameters/param_store.h"
#include "verify/findings.h"
#include "verify/record.h"

namespace trainctl {

/// The bound of the error in the change of a tensor, above the rounding of its type.
inline constexpr double update_bound = 1e-4;

/// Compares masters and the optimizer's values after step number `step`, which began with the
/// recorded ones and had the recorded gradients. `scores`: Engine::largest_scores.
void compare_update(Findings& findings, const Record& record, std::int64_t step,
                    const Config& config, const ParamStore& store, std::span<const float> scores,
                    const Mesh& mesh, std::int64_t rank);

}  // namespace trainctl
