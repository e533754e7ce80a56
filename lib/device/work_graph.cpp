#include "device/work_graph.h"

#include <cassert>
#include <vector>

#include "device/cuda_device.h"

namespace trainctl {

namespace {

std::vector<WorkGraph*>& graphs_of_thread() {
  static thread_local std::vector<WorkGraph*> graphs;
  return graphs;
}

}  // namespace

WorkGraph::WorkGraph() { graphs_of_thread().push_back(this); }

WorkGraph::~WorkGraph() {
  release();
  std::erase(graphs_of_thread(), this);
}

void WorkGraph::capture(Stream& stream, const std::function<void()>& enqueue) {
  assert(!captured() && stream.device() == DeviceKind::cuda);
  const CudaModule& cuda = cuda_module();
  captured_from_ = stream.native();
  try {
    cuda.begin_capture(captured_from_);
    enqueue();
    graph_ = cuda.end_capture(captured_from_);
    captured_from_ = nullptr;
  } catch (...) {
    release();
    throw;
  }
}

void WorkGraph::release() noexcept {
  if (captured_from_ != nullptr) cuda_module().abandon_capture(captured_from_);
  if (graph_ != nullptr) cuda_module().release_graph(graph_);
  captured_from_ = nullptr;
  graph_ = nullptr;
}

void release_graphs() noexcept {
  for (WorkGraph* graph : graphs_of_thread()) graph->release();
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
