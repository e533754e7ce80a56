// Waiting on the host for something that other ranks have a part in.
#pragma once

#include <string>

#include "base/error.h"
#include "base/units.h"
#include "device/stream.h"

namespace trainctl {

/// Returns when `event` is done. Past the deadline the group that it stems from throws and names
/// who is missing; should even that not happen, then after twice the deadline this throws
/// Error{peer}: what() + " did not end within 10 m 00 s". The text is only made then.
template <class What>
void await(const Event& event, double deadline_seconds, const What& what) {
  if (Stream::wait_host(event, 2 * deadline_seconds)) return;
  throw Error(ExitCode::peer,
              std::string(what()) + " did not end within " + format_seconds(2 * deadline_seconds));
}

}  // namespace trainctl
