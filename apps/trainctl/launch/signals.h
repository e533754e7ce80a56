// Signals that reach `launch`, for the ranks of its job.
#pragma once

#include <sys/types.h>

namespace trainctl {

/// From now on the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 goes to mpirun as SIGUSR1, again each
/// second until stop_passing_signals(), as it gets lost while mpirun starts the ranks; a second
/// SIGINT goes to it as SIGINT. Each is told. Signals that are ignored stay ignored.
void pass_signals_to(pid_t mpirun);
void stop_passing_signals();

/// 0, or the number of the first signal.
int signal_passed_on();
bool is_interrupted_twice();

}  // namespace trainctl
