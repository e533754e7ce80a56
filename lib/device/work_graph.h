// What a thread enqueues on the streams of its device, captured once and launched as one from then
// on (a CUDA graph): the host's part of a step is then one call.
#pragma once

#include <functional>

#include "device/stream.h"

namespace trainctl {

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

/// Of all graphs of this thread. NCCL waits for those that hold calls of a communicator before it
/// ends that one, so they go first.
void release_graphs() noexcept;

/// `stream` continues after everything on the other CUDA streams of this thread.
void join_streams(Stream& stream);

}  // namespace trainctl
