// The faults of a plan as a whole: no single key shows them.
#pragma once

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// Error "unfinished-gradients" where hooks.finalize_model_grads is false, but gradients are
/// shared.
void check_finalizing(const Plan& plan, const Config& config, const SourceMap& sources,
                      Diagnostics& diagnostics);

/// Warning "device-memory" where a rank needs more of its CUDA device than cluster.device_memory.
void check_device_memory(const Plan& plan, const Config& config, const SourceMap& sources,
                         Diagnostics& diagnostics);

/// Error "device-queues" where a rank has more streams on its CUDA device than the device has
/// queues: then a rank could wait for ever, unless ranks share devices. A warning where other
/// software is compared.
void check_device_queues(const Plan& plan, const Config& config, const SourceMap& sources,
                         Diagnostics& diagnostics);

}  // namespace trainctl
