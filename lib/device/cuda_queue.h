// The queue of a CUDA stream. For sources of the CUDA module.
#pragma once

#include <cuda_runtime_api.h>

#include <cassert>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/cuda_check.h"
#include "device/wait_pace.h"

namespace trainctl {

/// One stream and a ring of CUDA events. The event of ticket t lies at t modulo the ring's size
/// while t is newer than `done_`; the ring doubles when more tickets than it holds are under way,
/// so that a step allocates nothing once the first ones have set its size.
class CudaQueue {
 public:
  explicit CudaQueue(const char* name) : name_(name) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ring_.resize(64);
    for (cudaEvent_t& event : ring_) event = new_event();
    join_event_ = new_event();
    queues_of_thread().push_back(this);
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;
  /// Does not wait: CUDA keeps what is still in use until the device is done with it.
  ~CudaQueue() {
    std::erase(queues_of_thread(), this);
    cudaEventDestroy(join_event_);
    for (cudaEvent_t event : ring_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  /// Those that the calling thread has made: the streams of one rank.
  static std::vector<CudaQueue*>& queues_of_thread() {
    static thread_local std::vector<CudaQueue*> queues;
    return queues;
  }

  const std::string& name() const { return name_; }
  cudaStream_t stream() const { return stream_; }

  std::uint64_t record() {
    const std::lock_guard lock(mutex_);
    if (last_ - done_ == ring_.size() && !captures_) retire();
    if (last_ - done_ == ring_.size()) grow();
    CUDA_CHECK(cudaEventRecord(event_of(last_ + 1), stream_));
    return ++last_;
  }

  bool reached(std::uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    assert(ticket <= last_);
    if (ticket <= done_) return true;
    require(!captures_, ExitCode::internal,
            "[stream " + name_ + "] the host waits for work that is being captured");
    if (is_complete(event_of(ticket))) done_ = ticket;
    return ticket <= done_;
  }

  /// How the host waits for it. Other threads than the rank's may wait, too.
  WaitPace pace() {
    const std::lock_guard lock(mutex_);
    return pace_;
  }
  void set_pace(const WaitPace& pace) {
    const std::lock_guard lock(mutex_);
    pace_ = pace;
  }

  /// Makes `waiter` wait on the device for `ticket` of this queue.
  void hold(cudaStream_t waiter, std::uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    assert(ticket <= last_);
    if (ticket > done_) CUDA_CHECK(cudaStreamWaitEvent(waiter, event_of(ticket), 0));
  }

  /// `waiter` waits for everything on this stream, also in a capture.
  void join(cudaStream_t waiter) const {
    CUDA_CHECK(cudaEventRecord(join_event_, stream_));
    CUDA_CHECK(cudaStreamWaitEvent(waiter, join_event_, 0));
  }

  /// All work so far must be complete. From now on tickets are edges of a graph: the host cannot
  /// ask for them.
  void begin_capture() {
    const std::lock_guard lock(mutex_);
    retire();
    require(done_ == last_, ExitCode::internal,
            "[stream " + name_ + "] a capture begins while the stream works");
    captures_ = true;
  }
  /// Its tickets count as complete. That holds for the host, which waits for the launch instead.
  void end_capture() {
    const std::lock_guard lock(mutex_);
    captures_ = false;
    done_ = last_;
  }

 private:
  static cudaEvent_t new_event() {
    cudaEvent_t event = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
  }

  static bool is_complete(cudaEvent_t event) {
    const cudaError_t status = cudaEventQuery(event);
    if (status != cudaErrorNotReady) CUDA_CHECK(status);
    return status == cudaSuccess;
  }

  cudaEvent_t& event_of(std::uint64_t ticket) { return ring_[ticket % ring_.size()]; }

  void retire() {
    while (done_ < last_ && is_complete(event_of(done_ + 1))) ++done_;
  }

  void grow() {
    std::vector<cudaEvent_t> larger(ring_.size() * 2, nullptr);
    for (std::uint64_t ticket = done_ + 1; ticket <= last_; ++ticket) {
      larger[ticket % larger.size()] = event_of(ticket);
    }
    for (cudaEvent_t& event : larger) {
      if (event == nullptr) event = new_event();
    }
    ring_ = std::move(larger);
  }

  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;  // events are waited for by other threads than the one that records
  std::vector<cudaEvent_t> ring_;
  std::uint64_t last_ = 0;  // newest ticket
  std::uint64_t done_ = 0;  // this ticket and all before it are complete
  bool captures_ = false;
  WaitPace pace_;
  cudaEvent_t join_event_ = nullptr;
};

inline CudaQueue& queue_of(void* queue) { return *static_cast<CudaQueue*>(queue); }

}  // namespace trainctl
