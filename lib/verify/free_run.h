// Compares a layout, run as `train` runs it, with a single rank's free run.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/report.h"
#include "verify/data.h"
#include "verify/free_record.h"
#include "verify/verify.h"

namespace trainctl {

/// The bounds of a free run that differ from those in verify.h. See docs/verify.md.
inline constexpr double free_fp32_bound = 1e-3;  // gradients and the norm after the first step
inline constexpr double free_half_bound = 5e-2;
inline constexpr double loss_half_bound = 1e-3;  // bound for a mean over many tokens
inline constexpr double export_bound = 0.1;      // bound relative to a parameter's mean change

/// A rank's results after the step Day::noon: the report of each later step, and the values at the
/// end of the run.
struct Afternoon {
  std::vector<StepReport> reports;
  std::vector<std::vector<float>> values;  // one list per parameter and kind of value
};

/// A checkpoint of noon: the run's folder, and the afternoon of the layout that saved it.
struct NoonCheckpoint {
  std::filesystem::path run;
  std::vector<Afternoon> afternoons{};  // one per rank; filled for ranks of this process
};

/// Judges the whole day of a layout, with the configuration and plan of the day. Saves `noon`.
LayoutVerdict judge_day(const FreeRecord& record, const VerifiedLayout& layout,
                        const Faults& faults, NoonCheckpoint& noon);

/// Judges the afternoon, resumed from the checkpoint as `train` does. With `same`, the same layout
/// saved `noon`, and every number must be bit-identical.
LayoutVerdict judge_afternoon(const FreeRecord& record, const VerifiedLayout& layout,
                              const Faults& faults, const NoonCheckpoint& noon, bool same);

}  // namespace trainctl
