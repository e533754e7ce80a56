// The CUDA module's part for comm/: NCCL's communicators.

#include "comm/nccl/nccl_module.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "comm/nccl/nccl_check.h"
#include "device/cuda_check.h"
#include "device/cuda_device.h"

namespace trainctl {

// The calls of one communicator that its device may not have done yet, so that a hang can be named.
// For sources of the CUDA module.

/// A ring of events. It doubles when more calls are open than it holds, so that a step allocates
/// nothing once the first steps have set its size.
class OpenCalls {
 public:
  struct Call {
    GroupOperation operation;
    std::uint64_t number;  // counted from 1
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

  /// The first call that is not done; null if all are done.
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
  std::uint64_t done_ = 0;  // this call and all before it are done
};

namespace {

ncclDataType_t sum_type_of(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    default:
      throw Error(ExitCode::internal, "[nccl] sums are of fp32, bf16 or fp16, not " +
                                          std::string(name_of(tensor.dtype)));
  }
}

/// Calls that NCCL runs as one group. An error between them also closes the group, since an open
/// group would swallow every later call of this thread.
class CallGroup {
 public:
  CallGroup() { NCCL_CHECK(ncclGroupStart()); }
  ~CallGroup() {
    if (open_) ncclGroupEnd();
  }
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;
  void end() {
    open_ = false;
    NCCL_CHECK(ncclGroupEnd());
  }

 private:
  bool open_ = true;
};

std::size_t count_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }
std::size_t size_in_bytes(const Tensor& tensor) { return static_cast<std::size_t>(tensor.bytes()); }

struct Communicator {
  Communicator(std::string name_, int rank_, int size_)
      : name(std::move(name_)), rank(rank_), size(size_) {
    CUDA_CHECK(cudaMalloc(&token, sizeof(float)));
  }
  ~Communicator() {
    if (cudaFree(token) != cudaSuccess) cudaGetLastError();
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string name;
  const int rank, size;  // this member's place
  ncclComm_t handle = nullptr;
  ncclComm_t parent = nullptr;   // until the split from it is under way
  ncclComm_t nothing = nullptr;  // result of a split without a colour; NCCL may write it later
  void* token = nullptr;         // memory that barriers reduce; its content does not matter
  OpenCalls calls;
};

Communicator& of(void* communicator) { return *static_cast<Communicator*>(communicator); }

ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

int version() {
  int found = 0;
  NCCL_CHECK(ncclGetVersion(&found));
  return found;
}

std::string new_unique_id() {
  ncclUniqueId id;
  NCCL_CHECK(ncclGetUniqueId(&id));
  return std::string(reinterpret_cast<const char*>(&id), sizeof id);
}

void* join(const std::string& name, int rank, int size, const std::string& unique_id) {
  ncclUniqueId id;
  require(unique_id.size() == sizeof id, ExitCode::internal,
          "[nccl] " + name + ": a unique id of " + std::to_string(unique_id.size()) + " bytes");
  std::memcpy(&id, unique_id.data(), sizeof id);
  auto made = std::make_unique<Communicator>(name, rank, size);
  ncclConfig_t config = not_blocking();
  NCCL_CHECK(ncclCommInitRankConfig(&made->handle, size, id, rank, &config));
  return made.release();
}

/// Resources are not shared with the parent: NCCL would run the calls of both one after another.
void* split(void* parent, int colour, const std::string& name, int rank, int size) {
  ncclConfig_t config = not_blocking();
  ncclComm_t whole = of(parent).handle;
  if (colour < 0) {
    NCCL_CHECK(ncclCommSplit(whole, NCCL_SPLIT_NOCOLOR, 0, &of(parent).nothing, &config));
    return nullptr;
  }
  auto made = std::make_unique<Communicator>(name, rank, size);
  made->parent = whole;
  NCCL_CHECK(ncclCommSplit(whole, colour, rank, &made->handle, &config));
  return made.release();
}

bool is_settled(ncclComm_t handle) {
  ncclResult_t state = ncclInProgress;
  NCCL_CHECK(ncclCommGetAsyncError(handle, &state));
  NCCL_CHECK(state);
  return state != ncclInProgress;
}

/// A communicator may be queried only after its split is under way on the parent.
bool settled(void* communicator) {
  Communicator& mine = of(communicator);
  if (mine.parent != nullptr && !is_settled(mine.parent)) return false;
  mine.parent = nullptr;
  return is_settled(mine.handle);
}

void all_to_all(ncclComm_t handle, const WireCall& call, cudaStream_t queue) {
  const std::int64_t width = size_of(call.from.dtype);
  const auto* from = static_cast<const std::byte*>(call.from.data);
  auto* to = static_cast<std::byte*>(call.to.data);
  CallGroup calls;
  for (std::size_t peer = 0; peer < call.send_counts.size(); ++peer) {
    const auto sent = static_cast<std::size_t>(call.send_counts[peer] * width);
    const auto received = static_cast<std::size_t>(call.receive_counts[peer] * width);
    NCCL_CHECK(ncclSend(from, sent, ncclUint8, static_cast<int>(peer), handle, queue));
    NCCL_CHECK(ncclRecv(to, received, ncclUint8, static_cast<int>(peer), handle, queue));
    from += sent;
    to += received;
  }
  calls.end();
}

void enqueue(const Communicator& mine, const WireCall& call, cudaStream_t queue) {
  const Tensor& from = call.from;
  const Tensor& to = call.to;
  ncclComm_t handle = mine.handle;
  switch (call.operation) {
    case GroupOperation::all_reduce:
      NCCL_CHECK(ncclAllReduce(from.data, to.data, count_of(from), sum_type_of(from), ncclSum,
                               handle, queue));
      return;
    case GroupOperation::reduce_scatter:
      assert(from.numel() == to.numel() * mine.size && from.dtype == to.dtype);
      NCCL_CHECK(ncclReduceScatter(from.data, to.data, count_of(to), sum_type_of(from), ncclSum,
                                   handle, queue));
      return;
    case GroupOperation::all_gather:
      assert(to.numel() == from.numel() * mine.size && from.dtype == to.dtype);
      NCCL_CHECK(ncclAllGather(from.data, to.data, size_in_bytes(from), ncclUint8, handle, queue));
      return;
    case GroupOperation::broadcast:
      NCCL_CHECK(ncclBroadcast(from.data, to.data, size_in_bytes(from), ncclUint8, call.peer,
                               handle, queue));
      return;
    case GroupOperation::all_to_all:
      assert(std::ssize(call.send_counts) == mine.size);
      return all_to_all(handle, call, queue);
    case GroupOperation::send:
      NCCL_CHECK(ncclSend(from.data, size_in_bytes(from), ncclUint8, call.peer, handle, queue));
      return;
    case GroupOperation::receive:
      NCCL_CHECK(ncclRecv(to.data, size_in_bytes(to), ncclUint8, call.peer, handle, queue));
      return;
    case GroupOperation::barrier:
      NCCL_CHECK(ncclAllReduce(mine.token, mine.token, 1, ncclFloat32, ncclSum, handle, queue));
      return;
  }
}

void call(void* communicator, const WireCall& call, void* stream) {
  enqueue(of(communicator), call, static_cast<cudaStream_t>(stream));
}

/// Skips calls that are captured in a graph: the device only gets the launch of the graph.
void note(void* communicator, const WireCall& call, void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status));
  if (status != cudaStreamCaptureStatusNone) return;
  const std::int64_t bytes = std::max(call.from.bytes(), call.to.bytes());
  of(communicator).calls.add(call.operation, bytes, static_cast<cudaStream_t>(stream));
}

std::string open_call(void* communicator) {
  Communicator& mine = of(communicator);
  const OpenCalls::Call* first = mine.calls.first();
  if (first == nullptr) return "";
  return std::string(name_of(first->operation)) + " of " + mine.name + " (call " +
         std::to_string(first->number) + " of " + std::to_string(first->bytes) + " bytes, rank " +
         std::to_string(mine.rank) + " of " + std::to_string(mine.size) + ")";
}

void leave(void* communicator) { NCCL_CHECK(ncclCommFinalize(of(communicator).handle)); }

/// Aborts all in one NCCL group: one alone would wait for the device, which waits for the others.
void abort_all(std::span<void* const> communicators) noexcept {
  ncclGroupStart();
  for (void* communicator : communicators) {
    ncclComm_t& handle = of(communicator).handle;
    if (handle != nullptr) ncclCommAbort(handle);
    handle = nullptr;
  }
  ncclGroupEnd();
}

void release_communicator(void* communicator) noexcept {
  const std::unique_ptr<Communicator> mine(&of(communicator));
  if (mine->handle != nullptr) ncclCommDestroy(mine->handle);
}

const NcclModule nccl_part{.missing = nccl_missing,
                           .version = version,
                           .new_unique_id = new_unique_id,
                           .unique_id_bytes = sizeof(ncclUniqueId),
                           .join = join,
                           .split = split,
                           .settled = settled,
                           .call = call,
                           .note = note,
                           .open_call = open_call,
                           .leave = leave,
                           .abort = abort_all,
                           .release = release_communicator};

}  // namespace
}  // namespace trainctl

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_nccl() {
  return {&trainctl::nccl_part, sizeof(trainctl::NcclModule)};
}
