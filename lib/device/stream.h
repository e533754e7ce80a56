// Streams of work on a device, events that mark positions in streams, time marks, and graphs of
// captured work.
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

/// A closure stored inline, so that enqueueing work in a training step allocates nothing. Holds a
/// trivially copyable callable of up to 256 bytes.
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

// An ordered queue of work on a device, and events that mark positions in it. On the CPU, a queued
// stream is a worker thread, and an inline stream (the compute stream) runs work in the caller. On
// CUDA a stream is a cudaStream_t. Enqueued work is asynchronous unless said otherwise; failures
// surface when the host waits.

class Stream;

/// A position in a stream's queue; it is complete when everything enqueued before it is. Trivially
/// copyable. Valid while the stream exists. A default event is complete.
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

/// The table of a backend. Throws Error{unavailable} if it is not built or its library is missing.
const StreamApi& stream_api(DeviceKind device);

class Stream {
 public:
  enum class Mode { run_inline, queued };

  /// `name` appears in traces and error messages. On a device every stream is queued.
  Stream(DeviceKind device, std::string name, Mode mode);
  /// A stream over a queue that other code owns, such as the messages in flight in a group. Only
  /// the functions that `api` provides may be called.
  Stream(DeviceKind device, std::string name, const StreamApi& api, void* queue);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  DeviceKind device() const { return device_; }
  const std::string& name() const { return name_; }

  /// Runs host code in queue order (for CPU communication). If a task throws, the error is kept,
  /// later tasks of this stream are skipped, and wait_host of any later ticket rethrows it. Blocks
  /// while the queue is full. A task must not enqueue on its own stream.
  void enqueue(const Task& task) { api_->enqueue(queue_, task); }
  void copy(const Tensor& to, const Tensor& from);  // same bytes
  void zero(const Tensor& to);
  Event record() const { return Event{this, api_->record(queue_)}; }
  /// Later work of this stream starts after `event`, and fails if the event's stream failed. Blocks
  /// the host only for an inline stream, and if a CUDA stream waits for a CPU event: then it calls
  /// wait_host without a deadline.
  void wait(const Event& event);
  void* native() const { return api_->native(queue_); }

  /// Blocks the host until `event` is complete. Returns false if `seconds` pass first. Rethrows a
  /// failure of the stream, or of a rank for which a device waits (DeviceHealth).
  static bool wait_host(const Event& event, double seconds);
  static bool reached(const Event& event);
  /// Calls wait_host(record()) without a deadline.
  void synchronize() const;

 private:
  DeviceKind device_;
  std::string name_;
  const StreamApi* api_;
  void* queue_;
  bool run_inline_ = false;
  bool owns_queue_ = true;
};

// Events owned by another object, such as messages in flight. The object numbers its events and may
// complete them in any order. Streams and hosts wait for them like for events of streams.

class OwnEvents {
 public:
  /// `name` appears in traces and error messages.
  explicit OwnEvents(std::string name);
  OwnEvents(const OwnEvents&) = delete;
  OwnEvents& operator=(const OwnEvents&) = delete;

  /// The event is valid while this object exists.
  Event event(std::uint64_t ticket) const { return Event{&stream_, ticket}; }
  /// Called if a stream of a device waits for an event. Blocks the host until completion depends
  /// only on the device, then returns the device's event, or a default event if complete. An object
  /// without device events waits until the event is complete.
  virtual Event behind(std::uint64_t ticket);

  static const StreamApi api;

 protected:
  ~OwnEvents() = default;

 private:
  /// Waits at most `seconds` for an event; false if it is not complete yet. May throw its failure.
  virtual bool wait(std::uint64_t ticket, double seconds) = 0;
  /// Whether the event is complete, or waiting for it would throw.
  virtual bool reached(std::uint64_t ticket) = 0;

  Stream stream_;
};

// Time marks in a device's stream: the time when all previously enqueued work is complete.

/// Marks on CUDA streams. CPU streams that run work in the caller are timed by the caller's clock.
class TimeMarks {
 public:
  TimeMarks() = default;
  ~TimeMarks();
  TimeMarks(const TimeMarks&) = delete;
  TimeMarks& operator=(const TimeMarks&) = delete;

  /// Restarts with mark 0. set() allocates only if there are more marks than ever before.
  void clear() { used_ = 0; }
  /// Sets the next mark and returns its number.
  std::size_t set(const Stream& stream);
  /// The seconds from mark 0 to `mark`. The host must have waited for the stream.
  double seconds(std::size_t mark) const;

 private:
  std::vector<void*> marks_;
  std::size_t used_ = 0;
};

// The work that a thread enqueues on the streams of its device, captured once and then launched as
// a whole (a CUDA graph), so that a step takes the host a single call.

class WorkGraph {
 public:
  WorkGraph();
  ~WorkGraph();
  WorkGraph(const WorkGraph&) = delete;
  WorkGraph& operator=(const WorkGraph&) = delete;

  bool captured() const { return graph_ != nullptr; }
  /// Calls `enqueue` and records the work that it gives to CUDA streams of this thread, without
  /// running it. `enqueue` must not wait for the device, allocate on it or use other threads'
  /// streams, else this throws Error{internal}. Work begins and ends on `stream`. All streams of
  /// the thread must be idle (join_streams).
  void capture(Stream& stream, const std::function<void()>& enqueue);
  /// Enqueues the graph on `stream`, with the addresses at the time of the capture.
  void launch(Stream& stream) const;
  /// Destroys the graph, or an open capture. Launched work still completes.
  void release() noexcept;

 private:
  void* graph_ = nullptr;
  void* captured_from_ = nullptr;  // the stream of an open capture
};

/// Releases all graphs of this thread. Must run before a NCCL communicator ends, because NCCL first
/// waits for graphs that contain its calls.
void release_graphs() noexcept;

/// Makes `stream` wait for all previous work on the other CUDA streams of this thread.
void join_streams(Stream& stream);

// Replacement of the streams' function table, for measurements.

/// Streams of this device that are made later, in the whole process, use `api`; null restores the
/// device's own table. Functions of `api` observe a call and forward it to own_stream_api().
void replace_stream_api(DeviceKind device, const StreamApi* api);
/// The device's own table, even if it is replaced.
const StreamApi& own_stream_api(DeviceKind device);

}  // namespace trainctl
