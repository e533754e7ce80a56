// What the calls of a group travel on where their tensors lie on devices: a communicator of NCCL,
// or another way between the same ranks.
#pragma once

#include <cstdint>
#include <span>

#include "base/group_operation.h"
#include "device/stream.h"

namespace trainctl {

/// One call of a group on tensors of a device. What an operation does not need is empty.
struct WireCall {
  GroupOperation operation;
  Tensor from{}, to{};  // of all_reduce and broadcast the same
  int peer = 0;         // root of a broadcast, other end of a message
  std::span<const std::int64_t> send_counts{}, receive_counts{};  // elements
};

class Wire {
 public:
  virtual ~Wire() = default;
  /// Enqueues the call. Throws Error{peer} if another rank is missing or has failed.
  virtual void run(const WireCall& call, Stream& stream) = 0;
};

}  // namespace trainctl
