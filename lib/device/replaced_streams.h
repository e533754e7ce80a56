// Streams whose table of functions is another one, for measuring.
#pragma once

#include "device/stream.h"

namespace trainctl {

/// Streams of the device that are made from now on, in the whole process, have this table; null:
/// the device's again. Its functions look at a call and make it by own_stream_api().
void replace_stream_api(DeviceKind device, const StreamApi* api);
/// The table of the device, whatever replaces it.
const StreamApi& own_stream_api(DeviceKind device);

}  // namespace trainctl
