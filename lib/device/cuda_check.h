// CUDA_CHECK(call): throws Error with the call, its place and the runtime's message unless the call
// returned cudaSuccess, and clears the pending CUDA error, so that later checks see their own.
// For sources of the CUDA module; needs no CUDA header.
#pragma once

#define CUDA_CHECK(call) ::trainctl::check_cuda(static_cast<int>(call), #call, __FILE__, __LINE__)

namespace trainctl {

/// `status` is a cudaError_t. Wrong arguments and invalid addresses give Error{internal}, the rest
/// (no memory, no device, lost device ...) Error{unavailable}.
void check_cuda(int status, const char* call, const char* file, int line);

/// The number of the device that calls of this thread mean.
int current_cuda_device();

}  // namespace trainctl
