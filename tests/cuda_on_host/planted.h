// Where CUDA on the host makes the mistakes of plantable.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "block.h"
#include "plantable.h"

namespace cuda_on_host {

/// Whether CUDA_ON_HOST_FAULT, one of plantable[], is `fault`.
bool planted(const char* fault);

/// Where the program launches a kernel: false leaves it out.
bool plant_in_launch(Launch& launch);
/// Where a stream that is not the default one gets a copy: false leaves it out.
bool plant_in_copy(cudaStream_t stream, void* to, const void* from, std::size_t& bytes);
/// Where the host asks for an event.
void plant_in_query();

}  // namespace cuda_on_host
