// The table of the CPU's streams; internal to device/.
#pragma once

#include "device/stream.h"

namespace trainctl {

/// Inline queues run work in the caller, so each of their events is complete at once. Queued ones
/// have a worker thread of that name and room for 256 tasks; enqueueing does not allocate.
/// Destroying a queue runs what is in it (or skips it after a failure).
const StreamApi& cpu_stream_api();

}  // namespace trainctl
