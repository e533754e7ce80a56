#include "graphs.h"

#include <algorithm>
#include <mutex>

#include "runtime.h"

struct CUgraph_st {
  CUgraph_st(std::shared_ptr<cuda_on_host::Capture> of, int on)
      : capture(std::move(of)), device(on) {
    capture->hold();
  }
  ~CUgraph_st() { capture->let_go(); }
  std::shared_ptr<cuda_on_host::Capture> capture;
  int device = 0;
};

struct CUgraphExec_st : CUgraph_st {
  using CUgraph_st::CUgraph_st;
};

namespace cuda_on_host {

namespace {
/// The capture of the calling thread; there is at most one at a time.
std::shared_ptr<Capture>& capture_of_thread() {
  static thread_local std::shared_ptr<Capture> capture;
  return capture;
}
}  // namespace

Capture::Capture(cudaStream_t origin) { chains_.push_back({origin, {}}); }

Capture::Chain& Capture::chain_of(cudaStream_t stream) {
  for (auto& [known, chain] : chains_) {
    if (known == stream) return chain;
  }
  return chains_.emplace_back(stream, Chain{}).second;
}

bool Capture::knows(cudaStream_t stream) const {
  return std::ranges::any_of(chains_, [&](const auto& one) { return one.first == stream; });
}

void Capture::add(cudaStream_t stream, Maker make) {
  chain_of(stream).push_back({.made = static_cast<int>(makers_.size())});
  makers_.push_back(std::move(make));
}

int Capture::record(cudaStream_t stream) {
  chain_of(stream).push_back({.recorded = places_});
  return places_++;
}

void Capture::wait(cudaStream_t stream, int place) {
  chain_of(stream).push_back({.awaited = place});
}

bool Capture::end() {
  ended_ = true;
  for (const auto& [stream, chain] : chains_) stream->capture = nullptr;
  std::vector<std::pair<std::size_t, std::size_t>> places(static_cast<std::size_t>(places_));
  for (std::size_t c = 0; c < chains_.size(); ++c) {
    const Chain& chain = chains_[c].second;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      if (chain[i].recorded >= 0) places[static_cast<std::size_t>(chain[i].recorded)] = {c, i + 1};
    }
  }
  // How much of each chain comes before the origin's end.
  std::vector<std::size_t> before(chains_.size(), 0);
  before.front() = chains_.front().second.size();
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t c = 0; c < chains_.size(); ++c) {
      for (std::size_t i = 0; i < before[c]; ++i) {
        const int place = chains_[c].second[i].awaited;
        if (place < 0) continue;
        const auto [other, length] = places[static_cast<std::size_t>(place)];
        moved = moved || before[other] < length;
        before[other] = std::max(before[other], length);
      }
    }
  }
  for (std::size_t c = 0; c < chains_.size(); ++c) {
    const Chain& chain = chains_[c].second;
    for (std::size_t i = before[c]; i < chain.size(); ++i) {
      if (chain[i].made >= 0) return false;
    }
  }
  return true;
}

void Capture::put(cudaStream_t stream, const Chain& chain, std::vector<Work>& works,
                  const std::vector<std::shared_ptr<Mark>>& marks) {
  Machine& machine = Machine::get();
  for (const Item& item : chain) {
    if (item.made >= 0) {
      machine.enqueue(stream, std::move(works[static_cast<std::size_t>(item.made)]));
    } else if (item.recorded >= 0) {
      const auto mark = marks[static_cast<std::size_t>(item.recorded)];
      machine.enqueue(stream, {[mark] { return mark->reached = true; }, nullptr});
    } else {
      const auto mark = marks[static_cast<std::size_t>(item.awaited)];
      machine.enqueue(stream, {[mark] { return mark->reached; }, mark->stream});
    }
  }
}

void Capture::launch(cudaStream_t stream) const {
  std::vector<cudaStream_t> streams{stream};
  while (streams.size() < chains_.size()) Machine::get().add(streams.emplace_back(new CUstream_st));
  std::vector<std::shared_ptr<Mark>> marks(static_cast<std::size_t>(places_));
  for (std::size_t c = 0; c < chains_.size(); ++c) {
    for (const Item& item : chains_[c].second) {
      if (item.recorded < 0) continue;
      marks[static_cast<std::size_t>(item.recorded)] = std::make_shared<Mark>(Mark{streams[c]});
    }
  }
  std::vector<Work> works;
  for (const Maker& make : makers_) works.push_back(make());
  // The others first: nothing of the origin's has run when they get their work.
  for (std::size_t c = chains_.size(); c > 0; --c) {
    put(streams[c - 1], chains_[c - 1].second, works, marks);
  }
  for (std::size_t c = 1; c < chains_.size(); ++c) streams[c]->removed = true;
}

void Capture::let_go() {
  if (--holders_ <= 0) makers_.clear();
}

int& captures_of_thread() {
  static thread_local int count = 0;
  return count;
}

cudaError_t refuse_in_capture(const char* call) {
  if (captures_of_thread() == 0) return cudaSuccess;
  const std::string why = std::string(call) + " within the capture of a graph";
  capture_of_thread()->fail(why);
  return report(cudaErrorStreamCaptureUnsupported, why);
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(Machine::get().mutex);
  if (mode != cudaStreamCaptureModeThreadLocal) {
    return report(cudaErrorNotSupported, "only captures of a thread are known on the host");
  }
  if (stream == nullptr || stream->capture != nullptr || captures_of_thread() > 0) {
    return report(cudaErrorIllegalState, "a capture is under way, or of the default stream");
  }
  stream->capture = capture_of_thread() = std::make_shared<Capture>(stream);
  ++captures_of_thread();
  return device_error();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(Machine::get().mutex);
  *graph = nullptr;
  const auto capture = stream->capture;
  if (capture == nullptr || capture->origin() != stream || capture != capture_of_thread()) {
    return report(cudaErrorStreamCaptureUnmatched, "another stream or thread began the capture");
  }
  --captures_of_thread();
  capture_of_thread() = nullptr;
  const bool joined = capture->end();
  if (!capture->fault().empty() || !joined) capture->let_go();
  if (!capture->fault().empty()) {
    return report(cudaErrorStreamCaptureInvalidated, capture->fault());
  }
  if (!joined) {
    return report(cudaErrorStreamCaptureUnjoined,
                  "the capture's stream does not wait for all work of the others");
  }
  *graph = new CUgraph_st(capture, stream->device);
  return device_error();
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(Machine::get().mutex);
  const bool active = stream != nullptr && stream->capture != nullptr;
  *status = active ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const std::lock_guard lock(Machine::get().mutex);
  *exec = new CUgraphExec_st(graph->capture, graph->device);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard lock(Machine::get().mutex);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const std::lock_guard lock(Machine::get().mutex);
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (exec->device != Machine::device() || stream->device != exec->device) {
    return report(cudaErrorInvalidResourceHandle, "the graph belongs to another device");
  }
  if (stream->capture != nullptr) {
    return report(cudaErrorNotSupported, "graphs within graphs are not known on the host");
  }
  exec->capture->launch(stream);
  return device_error();
}

}  // extern "C"
