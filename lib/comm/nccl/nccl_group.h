// A group whose collectives run on CUDA devices through NCCL. Its members meet over another group
// of host memory; the collectives then run on the given stream's device queue.
#pragma once

#include <memory>
#include <string>

#include "comm/group.h"

namespace trainctl {

/// Collective over the members of `host`, each on the device that its thread selected; all members
/// call it in the same order. Throws Error{peer} if not all join within the deadline, and
/// Error{unavailable} without a device.
///
/// Its operations accept only CUDA tensors and CUDA streams. Sums are NCCL's: the same on every
/// rank and in every run of the same job, but not in group-rank order, and bf16 is rounded in
/// between. send and receive are refused: NCCL matches them only by order, and one would block the
/// stream behind it. The destructor leaves the group together with the others, or abandons it if
/// an exception is propagating or the deadline passes.
std::unique_ptr<Group> make_nccl_group(Group& host, const std::string& name,
                                       double deadline_seconds);

}  // namespace trainctl
