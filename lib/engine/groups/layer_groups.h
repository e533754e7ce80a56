// The groups in which the layers of a rank communicate, for attention and for experts.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/nccl/device_world.h"
#include "nn/reshard.h"
#include "nn/shared_keys.h"
#include "plan/plan.h"

namespace trainctl {

/// The groups in which a rank shares attention with others of its context-parallel group, as
/// divided by ContextSplit of plan/tables/token_layout.h.
struct ContextGroups {
  std::int64_t rank = 0;  // this rank's place in the context-parallel group
  // Null where no layer needs them.
  std::unique_ptr<Group> whole;  // the context-parallel group
  std::unique_ptr<Group> heads;  // neighbouring ranks, which exchange heads
  std::unique_ptr<Group> ring;   // one rank of each such neighbourhood
};

/// Collective over the context-parallel group.
ContextGroups make_context_groups(const Plan& plan, const DeviceWorld& world);

/// The groups for the attention of block number `unit`, with the buffer ContextParallel::packed.
ContextParallel context_of(const Plan& plan, const ContextGroups& groups, int unit,
                           const Tensor& packed);

// The groups of the ranks that share experts with this one.

struct ExpertRanks {
  std::unique_ptr<Group> ep;
  std::unique_ptr<Group> parts;          // ranks with parts of the same experts; null if one
  std::unique_ptr<Group> local_routers;  // ranks of a router; null if another group equals them
  // Copies of `ep` and `parts` that exchange row counts while rows travel; else null.
  std::unique_ptr<Group> ep_counts, parts_counts;
  std::unique_ptr<Stream> wire;  // exchanges rows during products; null without overlap
  ExpertGroups groups;           // the groups above in the form that layers take
};

/// Collective over the ranks of the stage that share experts or tokens. Empty without experts. `tp`
/// and `context` must outlive the result.
ExpertRanks make_expert_ranks(const Plan& plan, const DeviceWorld& world, Group& tp,
                              const ContextGroups& context);

}  // namespace trainctl
