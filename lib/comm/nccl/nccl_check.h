// NCCL for sources of the CUDA module: NCCL_CHECK and the library, which is opened when it is first
// needed. Needs no NCCL header.
#pragma once

#include <string>

#define NCCL_CHECK(call) ::trainctl::check_nccl(static_cast<int>(call), #call, __FILE__, __LINE__)

namespace trainctl {

/// `status` is an ncclResult_t. Error{peer} for remote and network failures, Error{internal} for
/// wrong arguments, otherwise Error{unavailable}; a pending CUDA error is
/// cleared.
void check_nccl(int status, const char* call, const char* file, int line);

/// Why NCCL cannot be used in this process; "" if it can.
std::string nccl_missing();

}  // namespace trainctl
