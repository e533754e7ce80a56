// An ordered queue of work on a device, and events that mark a place in it. On the CPU a queued
// stream is a worker thread; an inline stream (the compute stream) runs work in the caller. On CUDA
// it is a cudaStream_t. Everything enqueued is asynchronous unless said otherwise; failures surface
// when the host waits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/task.h"
#include "device/tensor.h"

namespace trainctl {

class Stream;

/// A place in a stream's queue: everything enqueued before it. Trivially copyable; valid while the
/// stream lives. A default event is complete.
struct Event {
  const Stream* stream = nullptr;
  std::uint64_t ticket = 0;
};

/// The functions that a backend implements for streams; one constant table per backend
/// (stream_cpu.cpp, stream_cuda.cpp).
struct StreamApi {
  void* (*create)(const char* name, bool run_inline);
  void (*destroy)(void* queue);
  void (*enqueue)(void* queue, const Task& task);  // host work in queue order
  void (*copy)(void* queue, void* to, const void* from, std::int64_t bytes);
  void (*zero)(void* queue, void* to, std::int64_t bytes);
  std::uint64_t (*record)(void* queue);
  void (*wait)(void* queue, void* other, std::uint64_t ticket);  // queue waits for other's ticket
  bool (*wait_host)(void* queue, std::uint64_t ticket, double seconds);  // false: deadline passed
  bool (*reached)(void* queue, std::uint64_t ticket);
  void* (*native)(void* queue);  // cudaStream_t, or null
};

/// Throws Error{unavailable} when the backend is not built or its library cannot be opened.
const StreamApi& stream_api(DeviceKind device);

class Stream {
 public:
  enum class Mode { run_inline, queued };

  /// `name` appears in traces and error messages. On a device every stream is queued.
  Stream(DeviceKind device, std::string name, Mode mode);
  /// A stream over a queue owned by other code, with its own table, for example the messages
  /// in flight in a group: only the functions of that table may be called.
  Stream(DeviceKind device, std::string name, const StreamApi& api, void* queue);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  DeviceKind device() const { return device_; }
  const std::string& name() const { return name_; }

  /// Runs host code in queue order (for CPU communication). The task may throw: the error is kept,
  /// later tasks of this stream are skipped, and wait_host of any later ticket rethrows it. Blocks
  /// while the queue is full. A task must not enqueue on its own stream.
  void enqueue(const Task& task) { api_->enqueue(queue_, task); }
  void copy(const Tensor& to, const Tensor& from);  // same bytes
  void zero(const Tensor& to);
  Event record() const { return Event{this, api_->record(queue_)}; }
  /// Later work of this stream starts after `event`, and fails if that failed. Does not block the
  /// host, except for an inline stream and for a CUDA stream that waits for a CPU event: there it
  /// is wait_host without a deadline.
  void wait(const Event& event);
  void* native() const { return api_->native(queue_); }

  /// Blocks the host until `event` is done; false if `seconds` pass first. Rethrows the stream's
  /// failure, and that of a rank which a device waits for (device_health.h).
  static bool wait_host(const Event& event, double seconds);
  static bool reached(const Event& event);
  /// wait_host(record()) without a deadline.
  void synchronize() const;

 private:
  DeviceKind device_;
  std::string name_;
  const StreamApi* api_;
  void* queue_;
  bool run_inline_ = false;
  bool owns_queue_ = true;
};

}  // namespace trainctl
