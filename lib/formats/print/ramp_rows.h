// The steps of a batch-size ramp, as every form of output shows them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/plan.h"

namespace trainctl {

struct RampRow {
  std::int64_t first_step = 0;  // from 1
  std::int64_t steps = 0;       // 0: the length of the run is not known
  std::int64_t batch = 0;       // sequences of a step over all ranks
  std::int64_t microbatches = 0;
  std::int64_t tokens = 0;  // of a step
  std::optional<double> step_seconds;
};

/// Those that the run reaches, in order; one without a ramp.
std::vector<RampRow> ramp_rows(const Plan& plan);

}  // namespace trainctl
