// The streams and events of the CUDA runtime, over machine.h.
#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>

#include "graphs.h"
#include "machine.h"
#include "planted.h"
#include "product_times.h"
#include "runtime.h"

using namespace cuda_on_host;

namespace {

/// Whether nine tenths are done of what the stream had to do before the place when it was recorded.
bool nearly_reached(const Mark& mark) {
  const std::uint64_t all = mark.before - mark.since;
  return 10 * (mark.stream->done - mark.since) >= 9 * all;
}

/// An event of a capture makes the stream part of it; others are of no capture.
cudaError_t wait_in_capture(cudaStream_t stream, cudaEvent_t event) {
  if (event->capture == nullptr) {
    stream->capture->fail("a wait for an event from outside of the capture");
    return report(cudaErrorStreamCaptureIsolation, stream->capture->fault());
  }
  if (stream->capture != nullptr && stream->capture != event->capture) {
    event->capture->fail("a wait of a stream of another capture");
    return report(cudaErrorStreamCaptureMerge, event->capture->fault());
  }
  if (event->capture->ended()) {
    return report(cudaErrorCapturedEvent, "a wait for an event of a capture that has ended");
  }
  stream->capture = event->capture;
  if (planted(stream->multiplies ? "compute_waits_not" : "others_wait_not") &&
      event->capture->knows(stream)) {
    return cudaSuccess;
  }
  event->capture->wait(stream, event->place);
  return device_error();
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  Machine& machine = Machine::get();
  if (flags != cudaStreamNonBlocking) {
    return report(cudaErrorNotSupported, "streams that wait for the default one are not known");
  }
  const std::lock_guard lock(machine.mutex);
  machine.add(*stream = new CUstream_st);
  return device_error();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  stream = stream_or_default(stream);
  const cudaError_t refused = refuse_in_capture("cudaStreamSynchronize");
  if (refused != cudaSuccess) return refused;
  machine.wait_until(lock, stream, [stream] { return stream->queue.empty(); });
  return device_error();
}

cudaError_t cudaDeviceSynchronize() {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  const cudaError_t refused = refuse_in_capture("cudaDeviceSynchronize");
  if (refused != cudaSuccess) return refused;
  const int mine = Machine::device();
  while (cudaStream_t busy = machine.busy_stream(mine)) {
    machine.wait_until(lock, busy, [&] { return machine.busy_stream(mine) != busy; });
  }
  return device_error();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().remove(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  const std::lock_guard lock(Machine::get().mutex);
  *id = stream_or_default(stream)->id;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(Machine::get().mutex);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

/// Within a capture, an external record is work that each launch does again; another one is an edge
/// of the graph.
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  stream = stream_or_default(stream);
  const bool external = flags == cudaEventRecordExternal;
  if (external != (stream->capture != nullptr && external)) {
    return report(cudaErrorInvalidValue, "an external record outside of a capture");
  }
  if (stream->capture != nullptr && !external) {
    event->latest = nullptr;
    event->capture = stream->capture;
    event->place = stream->capture->record(stream);
    return device_error();
  }
  event->capture = nullptr;
  machine.give(stream, [event, stream] {
    const auto mark = std::make_shared<Mark>(Mark{stream});
    mark->told_early = std::exchange(stream->tells_early, false);
    mark->before = stream->done + stream->queue.size();
    mark->since = stream->done;
    event->latest = mark;
    return Work{[mark] {
                  mark->time = std::chrono::steady_clock::now();
                  mark->product_time = Machine::get().at(mark->stream->device).product_time;
                  return mark->reached = true;
                },
                nullptr};
  });
  return device_error();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (event->capture != nullptr) {
    event->capture->fail("a query of an event that was captured");
    return report(cudaErrorCapturedEvent, event->capture->fault());
  }
  const cudaError_t refused = refuse_in_capture("cudaEventQuery");
  if (refused != cudaSuccess) return refused;
  const auto mark = event->latest;
  plant_in_query();
  if (planted("no_queries")) return device_error();
  if (mark == nullptr || mark->reached || mark->told_early) return device_error();
  machine.advance(*mark);
  if (planted("early_end") && nearly_reached(*mark)) return device_error();
  if (machine.at(Machine::device()).error != cudaSuccess) return device_error();
  return mark->reached ? cudaSuccess : cudaErrorNotReady;
}

/// The time between events is also defined for events that take no time.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
  const std::lock_guard lock(Machine::get().mutex);
  if (first->latest == nullptr || last->latest == nullptr) {
    return report(cudaErrorInvalidResourceHandle, "an event was never recorded");
  }
  if (!first->latest->reached || !last->latest->reached) return report(cudaErrorNotReady);
  if (product_times()) {
    *milliseconds = last->latest->product_time - first->latest->product_time;
    return cudaSuccess;
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(last->latest->time - first->latest->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  stream = stream_or_default(stream);
  if (stream->capture != nullptr || event->capture != nullptr) {
    return wait_in_capture(stream, event);
  }
  const auto mark = event->latest;
  if (mark == nullptr || mark->reached) return cudaSuccess;
  if (planted(stream->multiplies ? "compute_waits_not" : "others_wait_not")) return cudaSuccess;
  if (planted("ranks_wait_not") && mark->stream->maker != stream->maker) return cudaSuccess;
  machine.enqueue(stream, {[mark] { return mark->reached; }, mark->stream});
  return device_error();
}

}  // extern "C"
