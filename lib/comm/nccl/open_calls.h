// The calls of one communicator that its device may not have done yet, so that a hang can be named.
// For sources of the CUDA module.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "base/group_operation.h"
#include "device/cuda_check.h"

namespace trainctl {

/// A ring of events. It doubles when more calls are open than it holds, so that a step allocates
/// nothing once the first ones have set its size.
class OpenCalls {
 public:
  struct Call {
    GroupOperation operation;
    std::uint64_t number;  // from 1 on
    std::int64_t bytes;
    cudaEvent_t done;
  };

  OpenCalls() = default;
  ~OpenCalls() {
    for (const Call& call : ring_) cudaEventDestroy(call.done);
  }
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  void add(GroupOperation operation, std::int64_t bytes, cudaStream_t stream) {
    if (last_ - done_ == ring_.size()) retire();
    if (last_ - done_ == ring_.size()) grow();
    Call& call = at(++last_);
    call = {operation, last_, bytes, call.done};
    CUDA_CHECK(cudaEventRecord(call.done, stream));
  }

  /// The first that is not done; null for none.
  const Call* first() {
    retire();
    return done_ < last_ ? &at(done_ + 1) : nullptr;
  }

 private:
  Call& at(std::uint64_t number) { return ring_[number % ring_.size()]; }

  void retire() {
    while (done_ < last_ && cudaEventQuery(at(done_ + 1).done) == cudaSuccess) ++done_;
  }

  void grow() {
    std::vector<Call> larger(ring_.empty() ? 16 : 2 * ring_.size(), Call{});
    for (std::uint64_t number = done_ + 1; number <= last_; ++number) {
      larger[number % larger.size()] = at(number);
    }
    for (Call& call : larger) {
      if (call.done == nullptr) {
        CUDA_CHECK(cudaEventCreateWithFlags(&call.done, cudaEventDisableTiming));
      }
    }
    ring_ = std::move(larger);
  }

  std::vector<Call> ring_;
  std::uint64_t last_ = 0;  // newest number
  std::uint64_t done_ = 0;  // this and all before it are done
};

}  // namespace trainctl
