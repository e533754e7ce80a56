// CUDA_CHECK(call) throws Error with the call, its source line and the runtime's message unless the
// call returned cudaSuccess. It clears the pending CUDA error, so that later checks see only their
// own errors. For sources of the CUDA module; needs no CUDA header.
#pragma once

#define CUDA_CHECK(call) ::trainctl::check_cuda(static_cast<int>(call), #call, __FILE__, __LINE__)

namespace trainctl {

/// Throws if `status`, a cudaError_t, is an error: Error{internal} for wrong arguments and invalid
/// addresses, Error{unavailable} for other errors (no memory, no device, lost device ...).
void check_cuda(int status, const char* call, const char* file, int line);

/// The calling thread's current device.
int current_cuda_device();

}  // namespace trainctl
