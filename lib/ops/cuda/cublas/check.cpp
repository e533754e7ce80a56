#include "ops/cuda/cublas/check.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace trainctl {

void check_cublas(int status, const char* call, const char* file, int line) {
  const auto result = static_cast<cublasStatus_t>(status);
  if (result == CUBLAS_STATUS_SUCCESS) return;
  cudaGetLastError();
  const bool ours = result == CUBLAS_STATUS_INVALID_VALUE || result == CUBLAS_STATUS_NOT_SUPPORTED;
  const std::string place = std::filesystem::path(file).filename().string();
  throw Error(ours ? ExitCode::internal : ExitCode::unavailable,
              "[cublas] " + std::string(call) + " at " + place + ":" + std::to_string(line) + ": " +
                  cublasLtGetStatusString(result) + " (" + cublasLtGetStatusName(result) + ")");
}

}  // namespace trainctl
