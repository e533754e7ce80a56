// The streams of the CUDA module.
#pragma once

#include "device/stream.h"

namespace trainctl {

/// cudaStreamNonBlocking streams on the calling thread's device.
extern const StreamApi cuda_streams;

// The functions of CudaModule of these names.
void join_streams(void* stream);
void begin_capture(void* stream);
void abandon_capture(void* stream) noexcept;
void* end_capture(void* stream);
void launch_graph(void* graph, void* stream);
void release_graph(void* graph) noexcept;

}  // namespace trainctl
