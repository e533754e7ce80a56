// The CUDA module's part for comm/: NCCL communicators as groups.
#include "comm/nccl/nccl_module.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cassert>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "base/error.h"
#include "comm/nccl/nccl_check.h"
#include "device/cuda_check.h"
#include "device/cuda_device.h"

namespace trainctl {
namespace {

/// Polls a non-blocking communicator until it has finished what it was asked; false when `seconds`
/// pass first.
bool settle(ncclComm_t communicator, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  ncclResult_t state = ncclInProgress;
  for (int polls = 0;; ++polls) {
    NCCL_CHECK(ncclCommGetAsyncError(communicator, &state));
    NCCL_CHECK(state);
    if (state != ncclInProgress) return true;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() >= seconds) return false;
    if (polls < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

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

/// Calls that NCCL takes as one. An error between them still ends the group: an open one would
/// swallow every later call of this thread.
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
std::size_t bytes_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.bytes()); }

class NcclGroup final : public Group {
 public:
  explicit NcclGroup(const NcclMember& member)
      : name_(member.name),
        rank_(member.rank),
        size_(member.size),
        deadline_(member.deadline_seconds) {
    ncclUniqueId id;
    require(member.unique_id.size() == sizeof id, ExitCode::internal,
            "[nccl] group " + name_ + ": a unique id of " +
                std::to_string(member.unique_id.size()) + " bytes");
    std::memcpy(&id, member.unique_id.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      CUDA_CHECK(cudaMalloc(&token_, sizeof(float)));
      CUDA_CHECK(cudaMemset(token_, 0, sizeof(float)));
      NCCL_CHECK(ncclCommInitRankConfig(&communicator_, size_, id, rank_, &config));
      finish("joining");
    } catch (...) {
      abandon();
      release_token();
      throw;  // the destructor does not run
    }
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  ~NcclGroup() override {
    if (std::uncaught_exceptions() > 0 || !leave()) abandon();
    release_token();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }

  void all_reduce(const Tensor& data, Stream& stream) override {
    NCCL_CHECK(ncclAllReduce(data.data, data.data, count_of(data), sum_type_of(data), ncclSum,
                             communicator_, queue_of(data, stream)));
    finish("all_reduce");
  }

  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override {
    assert(data.numel() == shard.numel() * size_ && data.dtype == shard.dtype);
    NCCL_CHECK(ncclReduceScatter(data.data, shard.data, count_of(shard), sum_type_of(data), ncclSum,
                                 communicator_, queue_of(data, stream)));
    finish("reduce_scatter");
  }

  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override {
    assert(data.numel() == shard.numel() * size_ && data.dtype == shard.dtype);
    NCCL_CHECK(ncclAllGather(shard.data, data.data, bytes_of(shard), ncclUint8, communicator_,
                             queue_of(data, stream)));
    finish("all_gather");
  }

  void broadcast(const Tensor& data, int root, Stream& stream) override {
    NCCL_CHECK(ncclBroadcast(data.data, data.data, bytes_of(data), ncclUint8, root, communicator_,
                             queue_of(data, stream)));
    finish("broadcast");
  }

  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override {
    const auto size = static_cast<std::size_t>(size_);
    assert(send_counts.size() == size && receive_counts.size() == size);
    const cudaStream_t queue = queue_of(send, stream);
    const std::int64_t width = size_of(send.dtype);
    const auto* from = static_cast<const std::byte*>(send.data);
    auto* to = static_cast<std::byte*>(receive.data);
    CallGroup calls;
    for (std::size_t peer = 0; peer < size; ++peer) {
      const auto send_bytes = static_cast<std::size_t>(send_counts[peer] * width);
      const auto receive_bytes = static_cast<std::size_t>(receive_counts[peer] * width);
      const int to_rank = static_cast<int>(peer);
      NCCL_CHECK(ncclSend(from, send_bytes, ncclUint8, to_rank, communicator_, queue));
      NCCL_CHECK(ncclRecv(to, receive_bytes, ncclUint8, to_rank, communicator_, queue));
      from += send_bytes;
      to += receive_bytes;
    }
    calls.end();
    finish("all_to_all");
  }

  Event send(const Tensor& data, int to, int, Stream& stream) override {
    NCCL_CHECK(
        ncclSend(data.data, bytes_of(data), ncclUint8, to, communicator_, queue_of(data, stream)));
    finish("send");
    return stream.record();
  }
  Event receive(const Tensor& data, int from, int, Stream& stream) override {
    NCCL_CHECK(ncclRecv(data.data, bytes_of(data), ncclUint8, from, communicator_,
                        queue_of(data, stream)));
    finish("receive");
    return stream.record();
  }

  void barrier(Stream& stream) override {
    all_reduce(Tensor{token_, Shape{1}, DType::f32, DeviceKind::cuda}, stream);
  }

 private:
  cudaStream_t queue_of(const Tensor& data, const Stream& stream) const {
    require(data.device == DeviceKind::cuda && stream.device() == DeviceKind::cuda,
            ExitCode::internal,
            "[nccl] group " + name_ + " supports only CUDA tensors and streams");
    return static_cast<cudaStream_t>(stream.native());
  }

  /// Waits until NCCL has put what it was asked onto the stream: only then may events be recorded.
  void finish(const char* what) const {
    if (settle(communicator_, deadline_)) return;
    throw Error(ExitCode::peer, "[nccl] group " + name_ + ", rank " + std::to_string(rank_) +
                                    " of " + std::to_string(size_) + ": " + what +
                                    " was not under way within the deadline; another member is "
                                    "missing or stopped");
  }

  /// Leaves together with the others; false if that fails.
  bool leave() noexcept {
    try {
      NCCL_CHECK(ncclCommFinalize(communicator_));
      if (!settle(communicator_, deadline_)) return false;
      NCCL_CHECK(ncclCommDestroy(communicator_));
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  /// Ends this rank's side without the others: running collectives stop.
  void abandon() noexcept {
    if (communicator_ != nullptr) ncclCommAbort(communicator_);
    communicator_ = nullptr;
  }

  void release_token() noexcept {
    if (cudaFree(token_) != cudaSuccess) cudaGetLastError();
    token_ = nullptr;
  }

  std::string name_;
  int rank_;
  int size_;
  double deadline_;
  ncclComm_t communicator_ = nullptr;
  void* token_ = nullptr;  // what barriers reduce
};

std::string new_unique_id() {
  ncclUniqueId id;
  NCCL_CHECK(ncclGetUniqueId(&id));
  return std::string(reinterpret_cast<const char*>(&id), sizeof id);
}

std::unique_ptr<Group> join(const NcclMember& member) {
  return std::make_unique<NcclGroup>(member);
}

const NcclModule nccl_part{
    .new_unique_id = new_unique_id, .unique_id_bytes = sizeof(ncclUniqueId), .join = join};

}  // namespace
}  // namespace trainctl

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_nccl() {
  return {&trainctl::nccl_part, sizeof(trainctl::NcclModule)};
}
