// The groups in which a rank shares attention with others of its context-parallel group, by
// ContextSplit of plan/tables/token_layout.h.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/nccl/device_world.h"
#include "plan/plan.h"

namespace trainctl {

struct ContextGroups {
  std::int64_t rank = 0;  // in the context-parallel group
  // Null where no layer needs them.
  std::unique_ptr<Group> whole;  // all of them
  std::unique_ptr<Group> heads;  // a neighbourhood that exchanges heads
  std::unique_ptr<Group> ring;   // of neighbourhoods
};

/// Collective over the context-parallel group.
ContextGroups make_context_groups(const Plan& plan, const DeviceWorld& world);

}  // namespace trainctl
