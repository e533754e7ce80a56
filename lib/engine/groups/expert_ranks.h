// The groups of the ranks that share experts with this one.
#pragma once

#include <memory>

#include "comm/nccl/device_world.h"
#include "engine/groups/context_groups.h"
#include "nn/reshard.h"
#include "plan/plan.h"

namespace trainctl {

struct ExpertRanks {
  std::unique_ptr<Group> ep;
  std::unique_ptr<Group> parts;        // null: none are gathered
  std::unique_ptr<Group> own_routers;  // null where another group has the same ranks
  // Of the same ranks, for numbers of rows that travel while rows do; or null.
  std::unique_ptr<Group> ep_counts, parts_counts;
  std::unique_ptr<Stream> wire;  // of rows beside products; null: they are waited for
  ExpertGroups groups;           // for the layers
};

/// Collective over the ranks of the stage that share experts or tokens. Empty without experts.
/// `tp` and `context` must outlive it.
ExpertRanks make_expert_ranks(const Plan& plan, const DeviceWorld& world, Group& tp,
                              const ContextGroups& context);

}  // namespace trainctl
