// SIGINT, SIGTERM and SIGUSR1 ask a run to end after the current step; a second one ends the
// process at once.
#pragma once

namespace trainctl {

/// Installs the handlers for the life of the process.
void catch_stop_signals();
/// 0, or the number of the first signal received.
int stop_signal();

}  // namespace trainctl
