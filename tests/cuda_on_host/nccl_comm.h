// The communicators of NCCL on the host. One lock, the machine's, guards all.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "machine.h"
#include "nccl_meeting.h"

namespace cuda_on_host {

/// A message that waits for its counterpart.
struct Message {
  std::byte* data;
  std::size_t bytes;
  std::shared_ptr<bool> done;
};

/// One call of ncclCommSplit, with the requests of all members of the communicator.
struct Split {
  struct Part {
    int colour = NCCL_SPLIT_NOCOLOR;
    int key = 0;
    std::size_t meetings = 0;  // that the member had called before
    ncclComm_t child = nullptr;
    ncclComm_t* slot =
        nullptr;  // of the caller, filled once all have called; null once the caller has left
  };
  std::vector<Part> parts;  // by rank
  std::size_t arrived = 0;
};

/// The communicators of one id, or of one colour of a split.
struct Clique {
  std::vector<ncclComm_t> members;
  std::size_t joined = 0;
  std::vector<Split> splits;
  std::vector<Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<Message>> sends, receives;  // by sender and receiver
  ncclResult_t error = ncclSuccess;
  std::string message;

  void fail(const std::string& what) {
    error = ncclInvalidUsage;
    message = what;
  }
};

/// Work of a communicator: true once it is done.
using Step = std::function<bool()>;

/// A new communicator of the selected device. It is kept for ever, since a step of a stream may
/// still use it.
ncclComm_t new_communicator();
/// The message of the last failure of the calling thread.
std::string& last_nccl_failure();
ncclResult_t refuse(const std::string& why);

}  // namespace cuda_on_host

struct ncclComm {
  std::shared_ptr<cuda_on_host::Clique> clique;
  int rank = 0, size = 1, device = 0;
  std::size_t meetings = 0;                                // that this member's streams were given
  std::size_t splits = 0;                                  // the same
  std::deque<std::shared_ptr<cuda_on_host::Step>> issued;  // not done, in the order of the calls
  bool aborted = false;
  cudaStream_t other = nullptr;  // see stream_of
  std::size_t collectives = 0;   // that this member's program has called
  // Held by each call in a graph: until the last of them is gone, NCCL waits in its end.
  std::shared_ptr<int> graphs = std::make_shared<int>(0);

  /// Others have yet to call this member's latest split.
  bool splits_now() const {
    if (splits == 0) return false;
    const cuda_on_host::Split& latest = clique->splits[splits - 1];
    return latest.arrived < latest.parts.size();
  }
};
