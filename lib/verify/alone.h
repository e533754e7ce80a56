// The reference run for comparing layouts: a single rank, recorded step by step.
#pragma once

#include <cstdint>

#include "config/schema/config.h"
#include "engine/engine.h"
#include "plan/plan.h"
#include "verify/message_rounding.h"
#include "verify/record.h"

namespace trainctl {

/// The engine of a verified run; everything this refers to must outlive it.
EngineInput engine_input(const Config& config, const Plan& plan, double deadline_seconds);

/// Runs and records `steps` steps of one rank that rounds as the messages of the layouts it is
/// compared with, with everything else as in `config`. Throws Error{config} if one rank cannot run
/// it.
Record record_alone(const Config& config, std::int64_t steps, const MessageRounding& rounding);

/// Bytes of that recording.
std::int64_t record_bytes(const Config& config, std::int64_t steps);

}  // namespace trainctl
