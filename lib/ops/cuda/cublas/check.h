// CUBLAS_CHECK(call): throws Error with the call, its place and cuBLAS's words unless the call
// returned CUBLAS_STATUS_SUCCESS. For sources of the CUDA module; needs no CUDA header.
#pragma once

#define CUBLAS_CHECK(call) \
  ::trainctl::check_cublas(static_cast<int>(call), #call, __FILE__, __LINE__)

namespace trainctl {

/// `status` is a cublasStatus_t. Error{internal} for arguments that cuBLAS cannot take, else
/// Error{unavailable}; an error that CUDA keeps is cleared.
void check_cublas(int status, const char* call, const char* file, int line);

}  // namespace trainctl
