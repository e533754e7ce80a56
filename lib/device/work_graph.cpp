#include "device/work_graph.h"

#include <cassert>

#include "device/cuda_device.h"

namespace trainctl {

WorkGraph::~WorkGraph() {
  if (graph_ != nullptr) cuda_module().release_graph(graph_);
}

void WorkGraph::capture(Stream& stream, const std::function<void()>& enqueue) {
  assert(!captured() && stream.device() == DeviceKind::cuda);
  const CudaModule& cuda = cuda_module();
  cuda.begin_capture(stream.native());
  try {
    enqueue();
  } catch (...) {
    cuda.abandon_capture(stream.native());
    throw;
  }
  graph_ = cuda.end_capture(stream.native());
}

void WorkGraph::launch(Stream& stream) const {
  assert(captured());
  cuda_module().launch_graph(graph_, stream.native());
}

void join_streams(Stream& stream) {
  assert(stream.device() == DeviceKind::cuda);
  cuda_module().join_streams(stream.native());
}

}  // namespace trainctl
