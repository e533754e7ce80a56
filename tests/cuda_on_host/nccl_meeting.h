// The calls of all members of one collective, and what they compute. Sums go around a ring that
// begins elsewhere for every piece, rounded to the type on the way, as NCCL's do.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace cuda_on_host {

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast };

/// The call of one member. Counts are of elements of `type`, as NCCL counts them.
struct Call {
  Kind kind;
  std::size_t count;
  ncclDataType_t type;
  int root;
  ncclRedOp_t sum;
  const std::byte* from;
  std::byte* to;

  bool fits(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && root == other.root &&
           sum == other.sum;
  }
};

/// The members' calls of one operation.
struct Meeting {
  std::vector<std::unique_ptr<Call>> calls;
  std::size_t arrived = 0;
  bool done = false;
};

std::size_t size_of(ncclDataType_t type);
/// All members have come.
void perform(const Meeting& meeting);

}  // namespace cuda_on_host
