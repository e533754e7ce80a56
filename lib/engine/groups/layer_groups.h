// The groups over which the layers of a rank exchange: for attention and for experts.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/nccl/device_world.h"
#include "nn/reshard.h"
#include "plan/plan.h"

namespace trainctl {

/// The groups in which a rank shares attention with others of its context-parallel group, by
/// ContextSplit of plan/tables/token_layout.h.
struct ContextGroups {
  std::int64_t rank = 0;  // in the context-parallel group
  // Null where no layer needs them.
  std::unique_ptr<Group> whole;  // all of them
  std::unique_ptr<Group> heads;  // a neighbourhood that exchanges heads
  std::unique_ptr<Group> ring;   // of neighbourhoods
};

/// Collective over the context-parallel group.
ContextGroups make_context_groups(const Plan& plan, const DeviceWorld& world);

// The groups of the ranks that share experts with this one.

struct ExpertRanks {
  std::unique_ptr<Group> ep;
  std::unique_ptr<Group> parts;          // null if none are gathered
  std::unique_ptr<Group> local_routers;  // null where another group has the same ranks
  // Groups of these ranks for numbers of rows that travel while rows do; or null.
  std::unique_ptr<Group> ep_counts, parts_counts;
  std::unique_ptr<Stream> wire;  // for rows during products; null if they are waited for
  ExpertGroups groups;           // for the layers
};

/// Collective over the ranks of the stage that share experts or tokens. Empty without experts.
/// `tp` and `context` must outlive it.
ExpertRanks make_expert_ranks(const Plan& plan, const DeviceWorld& world, Group& tp,
                              const ContextGroups& context);

}  // namespace trainctl
