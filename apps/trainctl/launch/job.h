// A job: mpirun and the ranks that it starts, until launch knows how it ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arguments.h"

namespace trainctl {

/// Runs mpirun to its end and returns the code of the job: rank 0's code, sent when all is written;
/// else the first code of a rank that failed for its own reason; else 128 + the signal that ended a
/// rank; else ExitCode::unavailable if no rank has begun, otherwise ExitCode::peer. So 0 means that
/// the run has ended as it should.
///
/// mpirun would kill the ranks a second after SIGINT or SIGTERM, too soon for a checkpoint. So it
/// runs in a process group of its own, without standard input, and gets SIGUSR1 for the first
/// SIGINT, SIGTERM or SIGHUP, which it passes to the ranks; they save and end. A second SIGINT ends
/// them at once. After SIGINT the code is that of an interrupted run. Signals that are ignored stay
/// ignored.
///
/// mpirun that does not end 5 s after its ranks gets SIGTERM, and 2 s later SIGKILL. Throws
/// Error{unavailable} if it cannot be started.
///
/// `line`: mpirun, its options, and the program to start; `id`: TRAINCTL_LAUNCH of the ranks;
/// `hosts`: names for messages, may be empty; `start_seconds`: time limit until the first rank
/// begins.
int run_job(const Arguments& line, const std::string& id, std::int64_t ranks,
            const std::vector<std::string>& hosts, double start_seconds);

}  // namespace trainctl
