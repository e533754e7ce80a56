#include "device/cuda_check.h"

#include <cuda_runtime_api.h>

#include <filesystem>

namespace trainctl {
namespace {

ExitCode exit_code_of(cudaError_t status) {
  switch (status) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure: return ExitCode::internal;
    default: return ExitCode::unavailable;
  }
}

}  // namespace

void check_cuda(int status, const char* call, const char* file, int line) {
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) return;
  fail_call(exit_code_of(error), "cuda", call, file, line,
            std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")");
}

void fail_call(ExitCode code, const char* library, const char* call, const char* file, int line,
               const std::string& why) {
  cudaGetLastError();
  const std::string place = std::filesystem::path(file).filename().string();
  throw Error(code, "[" + std::string(library) + "] " + call + " at " + place + ":" +
                        std::to_string(line) + ": " + why);
}

int current_cuda_device() {
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  return device;
}

}  // namespace trainctl
