// Signals that end a run: the first asks for an end after the current step, with a checkpoint; a
// second SIGINT ends the process at once.
#pragma once

#include <string>

namespace trainctl {

/// Installs the handlers for SIGINT, SIGTERM, SIGHUP and SIGUSR1 for the life of the process.
/// Writing beyond a limit on file sizes becomes an error of the write.
void catch_stop_signals();
/// From now on the first signal ends the process at once, with code 77, or with `requeue_code` if a
/// scheduler asks (asks_to_requeue): there is nothing to save yet. 0: it is only noted again.
void end_at_once(int requeue_code);
/// 0, or the number of the first signal received.
int stop_signal();
/// "SIGTERM"; "" for 0.
std::string name_of_signal(int signal);
/// Whether a scheduler asks, which will start the run again. False for SIGINT, which a person
/// sends.
bool asks_to_requeue(int signal);

}  // namespace trainctl
