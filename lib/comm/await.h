// Waits on the host for something that also depends on other ranks.
#pragma once

#include <string>

#include "base/error.h"
#include "base/units.h"
#include "device/device_health.h"
#include "device/stream.h"

namespace trainctl {

/// Returns when `event` is done. After the deadline, the group that issued it throws and names the
/// missing ranks. If that fails, this throws after twice the deadline:
/// Error{peer} with what() + " did not end within 10 m 00 s" and what a device has not done. The
/// text is only built then.
template <class What>
void await(const Event& event, double deadline_seconds, const What& what) {
  if (Stream::wait_host(event, 2 * deadline_seconds)) return;
  throw Error(ExitCode::peer, std::string(what()) + " did not end within " +
                                  format_seconds(2 * deadline_seconds) + open_device_work());
}

/// What is enqueued on `stream` from now on starts after `event`. A stream that runs in the caller
/// waits here, as await does. A device waits by itself; the deadline is then kept where the host
/// waits for the device.
template <class What>
void continue_after(Stream& stream, const Event& event, double deadline_seconds, const What& what) {
  if (stream.device() == DeviceKind::cpu) return await(event, deadline_seconds, what);
  stream.wait(event);
}

}  // namespace trainctl
