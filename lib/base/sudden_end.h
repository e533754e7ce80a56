// The end of a process that cannot end in order: a thread of it waits for a disk that does not
// answer, or the run is not its own any more.
#pragma once

#include "base/error.h"

namespace trainctl {

/// Whom end_suddenly tells first. It may be called in a signal handler, so it neither allocates nor
/// locks. Set it once, before there are threads.
void tell_sudden_end_to(void (*tell)(int code));
/// Ends the process at once: no destructor runs, and nothing that is buffered is written.
[[noreturn]] void end_suddenly(ExitCode code);

}  // namespace trainctl
