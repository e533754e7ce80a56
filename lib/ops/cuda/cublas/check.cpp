#include "ops/cuda/cublas/check.h"

#include <cublasLt.h>

#include <string>

#include "device/cuda_check.h"

namespace trainctl {

void check_cublas(int status, const char* call, const char* file, int line) {
  const auto result = static_cast<cublasStatus_t>(status);
  if (result == CUBLAS_STATUS_SUCCESS) return;
  const bool ours = result == CUBLAS_STATUS_INVALID_VALUE || result == CUBLAS_STATUS_NOT_SUPPORTED;
  fail_call(
      ours ? ExitCode::internal : ExitCode::unavailable, "cublas", call, file, line,
      std::string(cublasLtGetStatusString(result)) + " (" + cublasLtGetStatusName(result) + ")");
}

}  // namespace trainctl
