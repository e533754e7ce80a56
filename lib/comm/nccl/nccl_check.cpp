#include "comm/nccl/nccl_check.h"

#include <nccl.h>

#include "device/cuda_check.h"

namespace trainctl {
namespace {

ExitCode exit_code_of(ncclResult_t status) {
  switch (status) {
    case ncclSystemError:
    case ncclRemoteError: return ExitCode::peer;
    case ncclInternalError:
    case ncclInvalidArgument:
    case ncclInvalidUsage: return ExitCode::internal;
    default: return ExitCode::unavailable;
  }
}

}  // namespace

void check_nccl(int status, const char* call, const char* file, int line) {
  const auto result = static_cast<ncclResult_t>(status);
  if (result == ncclSuccess || result == ncclInProgress) return;
  const std::string detail = ncclGetLastError(nullptr);
  fail_call(exit_code_of(result), "nccl", call, file, line,
            ncclGetErrorString(result) + (detail.empty() ? "" : ": " + detail));
}

}  // namespace trainctl
