// Other programs: running one for its output, and replacing this process by one.
#pragma once

#include <string>

#include "arguments.h"

namespace trainctl {

/// Replaces this process by `program` (looked up in PATH unless it holds a slash); `words` follow
/// the program's name. Returns only if that failed, with the reason.
std::string execute(const std::string& program, const Arguments& words);

/// Runs mpirun and returns its exit code; 128 + signal if one ended it. mpirun would kill the ranks
/// a second after SIGINT or SIGTERM, too soon for a checkpoint. So it runs in a process group of
/// its own, without standard input, and gets SIGUSR1 for the first SIGINT, SIGTERM or SIGHUP, which
/// it passes to the ranks; they save and end. A second SIGINT ends them at once. After SIGINT the
/// code is that of an interrupted run. Throws Error{unavailable} if it cannot be started.
int run_mpirun(const std::string& program, const Arguments& words);

/// The output of `program words...` on both streams, at most 64 KiB; "" if it cannot be started.
std::string output_of(const std::string& program, const Arguments& words);

/// The words as one line for a POSIX shell.
std::string shell_line(const Arguments& words);

/// The absolute path of this program.
std::string own_path();

}  // namespace trainctl
