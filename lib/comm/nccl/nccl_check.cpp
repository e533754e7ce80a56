#include "comm/nccl/nccl_check.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <filesystem>
#include <string>

#include "base/error.h"

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
  cudaGetLastError();
  const std::string place = std::filesystem::path(file).filename().string();
  const std::string detail = ncclGetLastError(nullptr);
  throw Error(exit_code_of(result), "[nccl] " + std::string(call) + " at " + place + ":" +
                                        std::to_string(line) + ": " + ncclGetErrorString(result) +
                                        (detail.empty() ? "" : ": " + detail));
}

}  // namespace trainctl
