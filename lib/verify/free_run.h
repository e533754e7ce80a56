// A layout as `train` runs it, compared with what a single rank computed in a free run.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/report.h"
#include "verify/data.h"
#include "verify/free_record.h"
#include "verify/verify.h"

namespace trainctl {

/// The bounds of a free run, where they are not those of verify.h. See docs/verify.md.
inline constexpr double free_fp32_bound = 1e-3;  // gradients and the norm after the first step
inline constexpr double free_half_bound = 5e-2;
inline constexpr double loss_half_bound = 1e-3;  // of a mean of many tokens
inline constexpr double export_bound = 0.1;      // of a parameter's mean change

/// The reports of a rank's steps after noon, and the values that it holds at the end of the day.
struct Afternoon {
  std::vector<StepReport> reports;
  std::vector<std::vector<float>> values;  // by parameter, and by kind of value
};

/// A checkpoint of noon: its run's folder, and the afternoon of the layout that saved it.
struct NoonCheckpoint {
  std::filesystem::path run;
  std::vector<Afternoon> afternoons{};  // by rank; of those of this process
};

/// The whole day, in a layout with the configuration and the plan of the day. It saves `noon`.
LayoutVerdict judge_day(const FreeRecord& record, const VerifiedLayout& layout,
                        const Faults& faults, NoonCheckpoint& noon);

/// Judges the afternoon from the checkpoint on, resumed as `train` does. `same`: `noon` is of the
/// same layout, and every number must have the same bits.
LayoutVerdict judge_afternoon(const FreeRecord& record, const VerifiedLayout& layout,
                              const Faults& faults, const NoonCheckpoint& noon, bool same);

}  // namespace trainctl
