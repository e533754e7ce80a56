// All ranks of a run use the layout that rank 0 has found.
#pragma once

#include <functional>

#include "comm/group.h"
#include "run/search/layout_choice.h"

namespace trainctl {

/// Calls `prepare` on every rank. If rank 0 `searches`, it goes first, and the other ranks get its
/// answer in `layout`, which must have a `choice`; otherwise all ranks call it at once. Waiting
/// ranks have no deadline. `what`: name of the configuration. If `prepare` throws on one rank,
/// every rank throws. Collective.
void prepare_with_one_answer(Group& everyone, const char* what, bool searches,
                             ArrangementRequest& layout, const std::function<void()>& prepare);

}  // namespace trainctl
