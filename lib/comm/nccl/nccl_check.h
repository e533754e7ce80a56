// NCCL_CHECK(call): throws Error with the call, its place and NCCL's message unless the call
// returned ncclSuccess or, on a non-blocking communicator, ncclInProgress. For sources of the CUDA
// module; needs no NCCL header.
#pragma once

#define NCCL_CHECK(call) ::trainctl::check_nccl(static_cast<int>(call), #call, __FILE__, __LINE__)

namespace trainctl {

/// `status` is an ncclResult_t. Error{peer} for remote and network failures, Error{internal} for
/// wrong arguments, otherwise Error{unavailable}; a pending CUDA error is
/// cleared.
void check_nccl(int status, const char* call, const char* file, int line);

}  // namespace trainctl
