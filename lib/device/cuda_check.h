// CUDA_CHECK(call) throws Error with the call, its source line and the runtime's message unless the
// call returned cudaSuccess. It clears the pending CUDA error, so that later checks see only their
// own errors. For sources of the CUDA module; needs no CUDA header.
#pragma once

#include <string>

#include "base/error.h"

#define CUDA_CHECK(call) ::trainctl::check_cuda(static_cast<int>(call), #call, __FILE__, __LINE__)

namespace trainctl {

/// Throws if `status`, a cudaError_t, is an error: Error{internal} for wrong arguments and invalid
/// addresses, Error{unavailable} for other errors (no memory, no device, lost device ...).
void check_cuda(int status, const char* call, const char* file, int line);

/// Throws for a call of `library` that failed for the reason `why`, and clears the pending CUDA
/// error.
[[noreturn]] void fail_call(ExitCode code, const char* library, const char* call, const char* file,
                            int line, const std::string& why);

/// The calling thread's current device.
int current_cuda_device();

}  // namespace trainctl
