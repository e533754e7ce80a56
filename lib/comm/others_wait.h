// Work of some members of a group that may last longer than the others may wait for them.
#pragma once

#include <functional>

#include "comm/group.h"

namespace trainctl {

/// Calls `body` on the members with `works`. Meanwhile all exchange a word several times per
/// second, on a thread of their own, so that no wait reaches its deadline while their processes
/// run. Returns when all are done, and rethrows what `body` threw. Collective.
void while_others_wait(Group& group, bool works, const std::function<void()>& body);

}  // namespace trainctl
