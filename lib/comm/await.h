// Waits on the host for something that also depends on other ranks.
#pragma once

#include <string>

#include "base/error.h"
#include "base/units.h"
#include "device/stream.h"

namespace trainctl {

/// Returns when `event` is done. After the deadline, the group that issued it throws and names the
/// missing ranks. If that fails, this throws after twice the deadline:
/// Error{peer} with what() + " did not end within 10 m 00 s". The text is only built then.
template <class What>
void await(const Event& event, double deadline_seconds, const What& what) {
  if (Stream::wait_host(event, 2 * deadline_seconds)) return;
  throw Error(ExitCode::peer,
              std::string(what()) + " did not end within " + format_seconds(2 * deadline_seconds));
}

}  // namespace trainctl
