// Streams of work on a device, the events that mark places in them, marks of time, and captures of
// work as graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/tensor.h"

namespace trainctl {

/// A closure with its storage inside, so that queueing work in a training step allocates nothing.
/// Holds any trivially copyable callable of up to 256 bytes.
class Task {
 public:
  Task() = default;
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, Task>)
      Task(F function) {  // implicit by intent: callers pass lambdas
    static_assert(std::is_trivially_copyable_v<F> && sizeof(F) <= sizeof(storage_));
    new (storage_) F(std::move(function));
    call_ = [](void* storage) { (*static_cast<F*>(storage))(); };
  }
  void operator()() { call_(storage_); }

 private:
  alignas(16) std::byte storage_[256];
  void (*call_)(void*) = nullptr;
};

// An ordered queue of work on a device, and events that mark a place in it. On the CPU a queued
// stream is a worker thread; an inline stream (the compute stream) runs work in the caller. On CUDA
// it is a cudaStream_t. Everything enqueued is asynchronous unless said otherwise; failures surface
// when the host waits.

class Stream;

/// A place in a stream's queue: everything enqueued before it. Trivially copyable; valid while the
/// stream lives. A default event is complete.
struct Event {
  const Stream* stream = nullptr;
  std::uint64_t ticket = 0;
};

/// The functions that a backend implements for streams; one constant table per backend
/// (stream.cpp, device_cuda.cpp).
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
  /// failure, and that of a rank which a device waits for (DeviceHealth).
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

// Events that an object keeps itself, such as messages that are on their way: it numbers them and
// knows when each is done, in any order. Streams and hosts wait for them as for those of streams.

class OwnEvents {
 public:
  /// `name` appears in traces and error messages.
  explicit OwnEvents(std::string name);
  OwnEvents(const OwnEvents&) = delete;
  OwnEvents& operator=(const OwnEvents&) = delete;

  /// Valid while the object lives.
  Event event(std::uint64_t ticket) const { return Event{&stream_, ticket}; }
  /// For a stream of a device that waits for an event: waits on the host until that depends on the
  /// device alone, and returns the device's event, or none if it is done. Unless the object has
  /// events of devices, it waits until the event is done.
  virtual Event behind(std::uint64_t ticket);

  static const StreamApi api;

 protected:
  ~OwnEvents() = default;

 private:
  /// Waits until the event is done, at most so long; false: not yet. May throw its failure.
  virtual bool wait(std::uint64_t ticket, double seconds) = 0;
  /// Whether it is done, or waiting for it would throw.
  virtual bool reached(std::uint64_t ticket) = 0;

  Stream stream_;
};

// Points in the time of a device's stream: when all that was enqueued before is done.

/// For CUDA streams; a CPU stream that works in the caller is timed by the caller's clock.
class TimeMarks {
 public:
  TimeMarks() = default;
  ~TimeMarks();
  TimeMarks(const TimeMarks&) = delete;
  TimeMarks& operator=(const TimeMarks&) = delete;

  /// Begins again with mark 0. Allocates only where more marks are set than ever before.
  void clear() { used_ = 0; }
  /// Sets the next mark and returns its number.
  std::size_t set(const Stream& stream);
  /// Seconds from mark 0; the host has waited for the stream.
  double seconds(std::size_t mark) const;

 private:
  std::vector<void*> marks_;
  std::size_t used_ = 0;
};

// The work that a thread enqueues on the streams of its device, captured once and launched as one
// from then on (a CUDA graph): the host's part of a step is then one call.

class WorkGraph {
 public:
  WorkGraph();
  ~WorkGraph();
  WorkGraph(const WorkGraph&) = delete;
  WorkGraph& operator=(const WorkGraph&) = delete;

  bool captured() const { return graph_ != nullptr; }
  /// Calls `enqueue`, and keeps what it gives to the CUDA streams of this thread; nothing of it
  /// runs. `enqueue` must not wait for the device, allocate on it or use another thread's streams:
  /// then this throws Error{internal}. `stream` is the first that works and the last. All
  /// streams of the thread must be done with their work (join_streams).
  void capture(Stream& stream, const std::function<void()>& enqueue);
  /// Enqueues it after everything on `stream` so far. The addresses are those of the capture.
  void launch(Stream& stream) const;
  /// Destroys the graph, or the capture that is under way. What was launched still ends.
  void release() noexcept;

 private:
  void* graph_ = nullptr;
  void* captured_from_ = nullptr;  // the stream, while a capture is open
};

/// Releases all graphs of this thread. NCCL waits for graphs that hold calls of a communicator
/// before it ends that communicator, so they go first.
void release_graphs() noexcept;

/// `stream` continues after everything on the other CUDA streams of this thread.
void join_streams(Stream& stream);

// Streams whose table of functions is another one, for measuring.

/// Streams of the device that are made from now on, in the whole process, have this table. Null
/// restores the device's own. The functions of the table look at a call and make it by
/// own_stream_api().
void replace_stream_api(DeviceKind device, const StreamApi* api);
/// The table of the device, whatever replaces it.
const StreamApi& own_stream_api(DeviceKind device);

}  // namespace trainctl
