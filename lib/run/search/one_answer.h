// The ranks of a run take the layout that one of them has found.
#pragma once

#include <functional>

#include "comm/group.h"
#include "run/search/layout_choice.h"

namespace trainctl {

/// Calls `prepare` on every rank: on all at once, or, where rank 0 `searches`, there first, and on
/// the others with its answer in `layout`, which must have a `choice`. Each may take longer than
/// the others may wait; `what`: the configuration's name. If one throws, every rank does.
/// Collective.
void prepare_with_one_answer(Group& everyone, const char* what, bool searches,
                             StrategyRequest& layout, const std::function<void()>& prepare);

}  // namespace trainctl
