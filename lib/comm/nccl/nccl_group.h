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
/// between. Messages are matched by their order alone, whatever their tag, and block the stream
/// behind them. The destructor leaves the group together with the others, or abandons it if
/// an exception is propagating or the deadline passes.
std::unique_ptr<Group> make_nccl_group(Group& host, const std::string& name,
                                       double deadline_seconds);
/// The same of this rank of `host` and the other end of a line, which calls it, too: the sender is
/// rank 0, the receiver rank 1. They meet in a message of `host` with the line's tag.
std::unique_ptr<Group> make_nccl_line(Group& host, const MessageLine& line,
                                      double deadline_seconds);

}  // namespace trainctl
