// Captures of the work of a thread's streams as graphs.
#include <cuda_runtime_api.h>

#include "device/cuda_check.h"
#include "device/cuda_queue.h"
#include "device/stream_cuda.h"

namespace trainctl {

namespace {

cudaStream_t native_of(void* stream) { return static_cast<cudaStream_t>(stream); }

/// Calls use(queue) for the calling thread's queues but that of `stream`, which it must have.
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

}  // namespace

void join_streams(void* stream) {
  for_others(stream, [&](const CudaQueue& other) { other.join(native_of(stream)); });
}

/// Other threads of the process, as those of NCCL, may ask for events meanwhile.
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

}  // namespace trainctl
