// The CUDA module's part for comm/, used by device_group.cpp: communicators of NCCL, which do not
// block. A call is under way once settled() says so, and only then may the next be made.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/collectives.h"
#include "device/stream.h"

namespace trainctl {

/// One call of a group on tensors of a device. Members that the operation does not use are empty.
struct WireCall {
  GroupOperation operation;
  Tensor from{}, to{};  // equal for all_reduce and broadcast
  int peer = 0;         // root of a broadcast, other end of a message
  std::span<const std::int64_t> send_counts{}, receive_counts{};  // elements
};

/// Communicators are handles. A failure of NCCL is thrown as in nccl_check.h.
struct NcclModule {
  /// Why NCCL cannot be used; "" if it can. If not, no other function may be called.
  std::string (*missing)();
  /// The library's version: 22807 is 2.28.7.
  int (*version)();
  /// Called by one member: bytes that all members of a new communicator must receive.
  std::string (*new_unique_id)();
  std::int64_t unique_id_bytes;
  /// Begins to join as rank `rank` of `size`, on the device of the calling thread. Collective over
  /// the members.
  void* (*join)(const std::string& name, int rank, int size, const std::string& unique_id);
  /// Begins to split: the ranks of `parent` with one colour are members of a new communicator, in
  /// which this one is rank `rank` of `size`. All ranks of `parent` call it, in one order; a rank
  /// with colour -1 is in no communicator and gets null.
  void* (*split)(void* parent, int colour, const std::string& name, int rank, int size);
  /// Whether the communicator's last call is under way. Throws if the communicator has failed.
  bool (*settled)(void* communicator);
  /// Begins a call. `stream` is a cudaStream_t.
  void (*call)(void* communicator, const WireCall& call, void* stream);
  /// Remembers a call that is under way, for open_call.
  void (*note)(void* communicator, const WireCall& call, void* stream);
  /// The first noted call that the device has not done: "all_reduce of layers among ranks 0, 1
  /// (call 12 of 4096 bytes, rank 1 of 2)"; "" if there is none.
  std::string (*open_call)(void* communicator);
  /// Begins to leave together with the other members; settled() and then release() must follow.
  void (*leave)(void* communicator);
  /// Ends these communicators at once, without the other members: the device stops waiting in them.
  void (*abort)(std::span<void* const> communicators) noexcept;
  /// Frees the handle of a communicator that has left or was aborted.
  void (*release)(void* communicator) noexcept;
};

}  // namespace trainctl
