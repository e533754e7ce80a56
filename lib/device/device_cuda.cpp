// The part of the CUDA module for device/: devices and their memory, streams, and graphs captured
// from a thread's streams.

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/cuda_check.h"
#include "device/cuda_device.h"
#include "device/stream.h"
#include "device/wait.h"

namespace trainctl {

/// A CUDA stream and a ring of CUDA events. The event of ticket t is at t modulo the ring's size
/// while t is newer than `done_`. If there are more incomplete tickets than events, the ring
/// doubles, so that steps allocate nothing after the first ones.
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
  /// Does not wait: CUDA keeps objects that are in use until the device has finished with them.
  ~CudaQueue() {
    std::erase(queues_of_thread(), this);
    cudaEventDestroy(join_event_);
    for (cudaEvent_t event : ring_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  /// The queues that the calling thread has made: the streams of one rank.
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

  /// The pace of host waits for this queue. Locked, because other threads may wait too.
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

  /// Makes `waiter` wait for everything on this stream; also valid in a capture.
  void join(cudaStream_t waiter) const {
    CUDA_CHECK(cudaEventRecord(join_event_, stream_));
    CUDA_CHECK(cudaStreamWaitEvent(waiter, join_event_, 0));
  }

  /// All previous work must be complete. Until end_capture, tickets are edges of a graph, which the
  /// host cannot query.
  void begin_capture() {
    const std::lock_guard lock(mutex_);
    retire();
    require(done_ == last_, ExitCode::internal,
            "[stream " + name_ + "] a capture begins while the stream works");
    captures_ = true;
  }
  /// Marks all tickets complete for the host, which waits for the launch of the graph instead.
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
  std::mutex mutex_;  // other threads than the recording one may wait for events
  std::vector<cudaEvent_t> ring_;
  std::uint64_t last_ = 0;  // newest ticket
  std::uint64_t done_ = 0;  // this ticket and all before it are complete
  bool captures_ = false;
  WaitPace pace_;
  cudaEvent_t join_event_ = nullptr;
};

inline CudaQueue& queue_of(void* queue) { return *static_cast<CudaQueue*>(queue); }

namespace {

// The mode is ignored: a CUDA stream is always queued.
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

void sleep(double seconds) {
  if (seconds <= 0) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Polls instead of blocking, so that a deadline can be kept.
bool wait_host(void* queue, std::uint64_t ticket, double seconds) {
  CudaQueue& waited_for = queue_of(queue);
  WaitLimit patience(seconds);
  WaitPace pace = waited_for.pace();
  const bool ended = wait_at_pace(
      pace, ticket, patience, [&] { return waited_for.reached(ticket); }, sleep);
  waited_for.set_pace(pace);
  return ended;
}

void* native(void* queue) { return queue_of(queue).stream(); }

/// Streams of the mode cudaStreamNonBlocking on the calling thread's device.
constexpr StreamApi cuda_streams{.create = create,
                                 .destroy = destroy,
                                 .enqueue = enqueue,
                                 .copy = copy,
                                 .zero = zero,
                                 .record = record,
                                 .wait = wait,
                                 .wait_host = wait_host,
                                 .reached = reached,
                                 .native = native};

cudaStream_t native_of(void* stream) { return static_cast<cudaStream_t>(stream); }

/// Calls use(queue) for all queues of the calling thread except that of `stream`, which must exist.
template <class Use>
void for_others(void* stream, const Use& use) {
  bool has = false;
  for (CudaQueue* queue : CudaQueue::queues_of_thread()) {
    const bool same = queue->stream() == native_of(stream);
    has = has || same;
    if (!same) use(*queue);
  }
  require(has, ExitCode::internal, "[cuda] a graph on the stream of another thread");
}

void leave_capture() {
  for (CudaQueue* queue : CudaQueue::queues_of_thread()) queue->end_capture();
}

// The following functions are the members of CudaModule with these names.
void join_streams(void* stream) {
  for_others(stream, [&](const CudaQueue& other) { other.join(native_of(stream)); });
}

/// ThreadLocal, because other threads, such as NCCL's, may query events during the capture.
void begin_capture(void* stream) {
  for (CudaQueue* one : CudaQueue::queues_of_thread()) one->begin_capture();
  CUDA_CHECK(cudaStreamBeginCapture(native_of(stream), cudaStreamCaptureModeThreadLocal));
  cudaEvent_t begun = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventRecord(begun, native_of(stream)));
  for_others(stream, [&](const CudaQueue& other) {
    CUDA_CHECK(cudaStreamWaitEvent(other.stream(), begun, 0));
  });
  CUDA_CHECK(cudaEventDestroy(begun));
}

void abandon_capture(void* stream) noexcept {
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(native_of(stream), &graph) != cudaSuccess) cudaGetLastError();
  if (graph != nullptr) cudaGraphDestroy(graph);
  leave_capture();
}

void* end_capture(void* stream) {
  join_streams(stream);
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(native_of(stream), &graph));
  leave_capture();
  cudaGraphExec_t ready = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  CUDA_CHECK(status);
  return ready;
}

void launch_graph(void* graph, void* stream) {
  CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), native_of(stream)));
}

void release_graph(void* graph) noexcept {
  if (cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)) != cudaSuccess) cudaGetLastError();
}

}  // namespace

namespace {

/// Converts CUDA's number to text, such as 13000 to "13.0".
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string why_unusable() {
  int driver = 0;
  int runtime = 0;
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) return "no CUDA device: no NVIDIA driver is loaded";
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) +
           ", the module was built for CUDA " + version_text(runtime);
  }
  if (status == cudaSuccess && count > 0) return "";
  cudaGetLastError();
  return std::string("no CUDA device: ") +
         cudaGetErrorString(status == cudaSuccess ? cudaErrorNoDevice : status);
}

int device_count() {
  int count = 0;
  CUDA_CHECK(cudaGetDeviceCount(&count));
  return count;
}

CudaDeviceProperties properties(int device) {
  cudaDeviceProp found{};
  CUDA_CHECK(cudaGetDeviceProperties(&found, device));
  return CudaDeviceProperties{found.name, found.major * 10 + found.minor, found.multiProcessorCount,
                              static_cast<std::int64_t>(found.totalGlobalMem), found.l2CacheSize};
}

void select(int device) { CUDA_CHECK(cudaSetDevice(device)); }

[[noreturn]] void refuse_memory(std::int64_t bytes) {
  cudaGetLastError();
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  const int device = current_cuda_device();
  const auto mebibytes = [](std::size_t count) { return std::to_string(count >> 20) + " MiB"; };
  throw Error(ExitCode::unavailable, "[cuda] " + mebibytes(static_cast<std::size_t>(bytes)) +
                                         " asked for on device " + std::to_string(device) + " (" +
                                         properties(device).name + "), " + mebibytes(free_bytes) +
                                         " of " + mebibytes(total_bytes) + " are free");
}

void* allocate(std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, count);
  if (status == cudaErrorMemoryAllocation) refuse_memory(bytes);
  CUDA_CHECK(status);
  // The default stream is not ordered before non-blocking streams, so wait for the zeroes here.
  CUDA_CHECK(cudaMemset(data, 0, count));
  CUDA_CHECK(cudaStreamSynchronize(nullptr));
  return data;
}

/// Ignores failures: at the end of a process the driver may already be gone.
void release(void* data) noexcept {
  if (cudaFree(data) != cudaSuccess) cudaGetLastError();
}

void* allocate_host(std::int64_t bytes) {
  void* data = nullptr;
  CUDA_CHECK(cudaMallocHost(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
  return std::memset(data, 0, static_cast<std::size_t>(bytes));
}

void release_host(void* data) noexcept {
  if (cudaFreeHost(data) != cudaSuccess) cudaGetLastError();
}

/// Synchronizes, because a copy from pageable memory may return before it is complete.
void copy(void* to, const void* from, std::int64_t bytes) {
  CUDA_CHECK(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault));
  CUDA_CHECK(cudaStreamSynchronize(nullptr));
}

void finish() noexcept {
  if (cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();
}

void* make_mark() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  return event;
}

void release_mark(void* mark) noexcept {
  if (cudaEventDestroy(static_cast<cudaEvent_t>(mark)) != cudaSuccess) cudaGetLastError();
}

/// In a capture, the mark is a node of the graph and is set by each launch.
void set_mark(void* mark, void* stream) {
  auto* const queue = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(queue, &status));
  const bool captured = status != cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaEventRecordWithFlags(static_cast<cudaEvent_t>(mark), queue,
                                      captured ? cudaEventRecordExternal : cudaEventRecordDefault));
}

double seconds_between(void* earlier, void* later) {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier),
                                  static_cast<cudaEvent_t>(later)));
  return double{milliseconds} * 1e-3;
}

void begin_range(const char* name) { nvtxRangePushA(name); }

void end_range() { nvtxRangePop(); }

const CudaModule device_part{.streams = &cuda_streams,
                             .why_unusable = why_unusable,
                             .device_count = device_count,
                             .properties = properties,
                             .select = select,
                             .allocate = allocate,
                             .release = release,
                             .allocate_host = allocate_host,
                             .release_host = release_host,
                             .copy = copy,
                             .finish = finish,
                             .make_mark = make_mark,
                             .release_mark = release_mark,
                             .set_mark = set_mark,
                             .seconds_between = seconds_between,
                             .join_streams = join_streams,
                             .begin_capture = begin_capture,
                             .abandon_capture = abandon_capture,
                             .end_capture = end_capture,
                             .launch_graph = launch_graph,
                             .release_graph = release_graph,
                             .begin_range = begin_range,
                             .end_range = end_range};

}  // namespace
}  // namespace trainctl

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_device() {
  return {&trainctl::device_part, sizeof(trainctl::CudaModule)};
}
