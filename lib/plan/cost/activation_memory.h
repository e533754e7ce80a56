// How many bytes of activations a stage holds at its fullest moment, with what is recomputed or
// kept on the host left out.
#pragma once

#include <cstdint>
#include <vector>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// What a stage does not keep for a whole micro-batch: of its first so many layers each.
struct ActivationSavings {
  std::int64_t recomputed_layers = 0;
  std::int64_t offloaded_layers = 0;
  std::int64_t input_parts = 1;      // ranks among which a recomputed layer's input is cut
  std::int64_t offload_buffers = 1;  // offloaded layers on the device at a time
};
ActivationSavings activation_savings(const Plan& plan, int stage, const Config& config);

/// Bytes of kept and batch rows when most of them are alive, and of transient rows. With one chunk
/// that is slots x (kept + batch) + transient; with several, the peak over the schedule's rows.
/// A recomputed layer keeps its input; its other rows are there once, for one layer. So are all
/// rows of an offloaded one. `layers`: of the whole model.
std::int64_t stage_activation_bytes(const StagePlan& stage, std::int64_t layers,
                                    const ActivationSavings& savings);

}  // namespace trainctl
