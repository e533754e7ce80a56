// Launches on streams of the CUDA runtime on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "block.h"

namespace cuda_on_host {

/// Puts the launch into the stream's queue. Throws as CUDA_CHECK does where CUDA would refuse it:
/// more threads or shared memory than a block has, an empty grid, a lost device.
void enqueue(const Launch& launch, cudaStream_t stream);

/// A name for messages: the parameters' types, from the name of an instance of launch.
std::string name_of(const char* function, const void* kernel);

}  // namespace cuda_on_host
