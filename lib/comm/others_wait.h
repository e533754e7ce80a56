// Work of some members of a group that may last longer than the others may wait for them.
#pragma once

#include <functional>

#include "comm/group.h"

namespace trainctl {

/// How long a thread may use no processor time (WorkingThread) while others wait for what it does:
/// as long as they may wait for a word, but not so short that a pause between two tries counts.
double longest_idle(const Group& group);

/// Calls `body` on the members with `works`. Meanwhile all exchange a word several times per
/// second, on a thread of their own, so that no wait reaches its deadline while their processes
/// run. Returns when all are done. If a body throws, every member throws, as share_failure says. A
/// process whose body a disk or a server does not answer for longest_idle() ends with ExitCode::io,
/// and a line that names `what`: "the training data". Collective.
void while_others_wait(Group& group, const char* what, bool works,
                       const std::function<void()>& body);

/// The line of a thread that is stuck in `what`, and the end of its process.
[[noreturn]] void end_stuck(const char* what, double idle_seconds);

}  // namespace trainctl
