// A layout as `train` runs it, compared with what a single rank computed in a free run.
#pragma once

#include "verify/data.h"
#include "verify/free_record.h"
#include "verify/verify.h"

namespace trainctl {

/// The bounds of a free run, where they are not those of verify.h. See docs/verify.md.
inline constexpr double free_fp32_bound = 1e-3;  // gradients and the norm after the first step
inline constexpr double free_half_bound = 5e-2;
inline constexpr double loss_half_bound = 1e-3;  // of a mean of many tokens
inline constexpr double export_bound = 0.1;      // of a parameter's mean change

LayoutVerdict judge_free_run(const FreeRecord& record, const FreeData& data,
                             const VerifiedLayout& layout, const Faults& faults);

}  // namespace trainctl
