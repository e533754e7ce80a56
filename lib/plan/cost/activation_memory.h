// The activation bytes of a stage at its peak, without what is recomputed or kept on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// What a stage does not keep for a whole micro-batch, as numbers of its first layers.
struct ActivationSavings {
  std::int64_t recomputed_layers = 0;
  std::int64_t offloaded_layers = 0;
  std::int64_t input_parts = 1;      // number of ranks that share a recomputed layer's input
  std::int64_t offload_buffers = 1;  // number of offloaded layers on the device at a time
};
ActivationSavings activation_savings(const Plan& plan, int stage, const Config& config);

/// Bytes of kept and batch rows at their peak, and of transient rows. With one chunk this is
/// slots x (kept + batch) + transient; with several, the peak over the schedule's rows.
/// A recomputed layer keeps its input; its other rows exist once, for one layer. All rows of an
/// offloaded layer are treated so too. `layers`: of the whole model.
std::int64_t stage_activation_bytes(const StagePlan& stage, std::int64_t layers,
                                    const ActivationSavings& savings);

}  // namespace trainctl
