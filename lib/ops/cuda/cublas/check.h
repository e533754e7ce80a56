// CUBLAS_CHECK(call) throws Error with the call, its source line and cuBLAS's message unless the
// call returned CUBLAS_STATUS_SUCCESS. For sources of the CUDA module; needs no CUDA header.
#pragma once

#define CUBLAS_CHECK(call) \
  ::trainctl::check_cublas(static_cast<int>(call), #call, __FILE__, __LINE__)

namespace trainctl {

/// Throws if `status`, a cublasStatus_t, is an error: Error{internal} for arguments that cuBLAS
/// rejects, else Error{unavailable}. Also clears a pending CUDA error.
void check_cublas(int status, const char* call, const char* file, int line);

}  // namespace trainctl
