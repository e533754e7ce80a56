#include "device/stream_cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/cuda_check.h"

namespace trainctl {
namespace {

/// One stream and a ring of CUDA events. The event of ticket t lies at t modulo the ring's size
/// while t is newer than `done_`; the ring doubles when more tickets than it holds are under way,
/// so that a step allocates nothing once the first ones have set its size.
class CudaQueue {
 public:
  explicit CudaQueue(const char* name) : name_(name) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ring_.resize(64);
    for (cudaEvent_t& event : ring_) event = new_event();
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;
  /// Does not wait: CUDA keeps what is still in use until the device is done with it.
  ~CudaQueue() {
    for (cudaEvent_t event : ring_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  const std::string& name() const { return name_; }
  cudaStream_t stream() const { return stream_; }

  std::uint64_t record() {
    const std::lock_guard lock(mutex_);
    if (last_ - done_ == ring_.size()) retire();
    if (last_ - done_ == ring_.size()) grow();
    CUDA_CHECK(cudaEventRecord(event_of(last_ + 1), stream_));
    return ++last_;
  }

  bool reached(std::uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    assert(ticket <= last_);
    if (ticket > done_ && is_complete(event_of(ticket))) done_ = ticket;
    return ticket <= done_;
  }

  /// Makes `waiter` wait on the device for `ticket` of this queue.
  void hold(cudaStream_t waiter, std::uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    assert(ticket <= last_);
    if (ticket > done_) CUDA_CHECK(cudaStreamWaitEvent(waiter, event_of(ticket), 0));
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
};

CudaQueue& queue_of(void* queue) { return *static_cast<CudaQueue*>(queue); }

// The mode is not asked: a CUDA stream is always queued.
void* create(const char* name, bool) { return new CudaQueue(name); }

void destroy(void* queue) { delete &queue_of(queue); }

void enqueue(void* queue, const Task&) {
  throw Error(ExitCode::unavailable, "[stream " + queue_of(queue).name() +
                                         "] host tasks run on CPU streams, not on CUDA ones");
}

void copy(void* queue, void* to, const void* from, std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(bytes);
  CUDA_CHECK(cudaMemcpyAsync(to, from, count, cudaMemcpyDefault, queue_of(queue).stream()));
}

void zero(void* queue, void* to, std::int64_t bytes) {
  CUDA_CHECK(cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), queue_of(queue).stream()));
}

std::uint64_t record(void* queue) { return queue_of(queue).record(); }

void wait(void* queue, void* other, std::uint64_t ticket) {
  queue_of(other).hold(queue_of(queue).stream(), ticket);
}

bool reached(void* queue, std::uint64_t ticket) { return queue_of(queue).reached(ticket); }

/// Polls, so that a deadline can be kept: busily for the first 100 microseconds, then with pauses
/// that double up to one millisecond.
bool wait_host(void* queue, std::uint64_t ticket, double seconds) {
  using Seconds = std::chrono::duration<double>;
  const auto start = std::chrono::steady_clock::now();
  Seconds pause{20e-6};
  while (!queue_of(queue).reached(ticket)) {
    const Seconds elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() >= seconds) return false;
    if (elapsed.count() < 100e-6) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::min(pause, Seconds{seconds} - elapsed));
    pause = std::min(2 * pause, Seconds{1e-3});
  }
  return true;
}

void* native(void* queue) { return queue_of(queue).stream(); }

}  // namespace

const StreamApi cuda_streams{.create = create,
                             .destroy = destroy,
                             .enqueue = enqueue,
                             .copy = copy,
                             .zero = zero,
                             .record = record,
                             .wait = wait,
                             .wait_host = wait_host,
                             .reached = reached,
                             .native = native};

}  // namespace trainctl
