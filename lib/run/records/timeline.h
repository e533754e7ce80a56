// The rows of a measured step as measured.json has them, for the report's drawing.
#pragma once

#include <string>

#include "engine/trace.h"

namespace trainctl {

/// On rank 0 the JSON of {"step", "ranks": [{"rank", "rows": [[name, start, length, waited],
/// ...]}]} in microseconds, with one rank of each stage; "" elsewhere. Neighbouring rows of one
/// micro-batch and kind are one. `step` as the trace counts, `shown` as the run does. Collective.
std::string timeline_json(const TraceSource& source, std::int64_t step, std::int64_t shown);

}  // namespace trainctl
