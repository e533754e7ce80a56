// The streams of the CUDA module.
#pragma once

#include "device/stream.h"

namespace trainctl {

/// cudaStreamNonBlocking streams on the calling thread's device.
extern const StreamApi cuda_streams;

}  // namespace trainctl
