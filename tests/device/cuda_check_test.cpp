// The check macros of the CUDA module, made to fail. Needs the CUDA libraries but no device.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "base/error.h"
#include "catch.h"
#include "comm/nccl/nccl_check.h"
#include "contains.h"
#include "device/cuda_check.h"
#include "ops/cuda/cublas/check.h"

using namespace trainctl;
namespace {

/// The code and text that a check throws; {ok, ""} if it throws nothing.
struct Thrown {
  ExitCode code = ExitCode::ok;
  std::string message;
};

template <class Call>
Thrown thrown_by(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

}  // namespace

TEST_CASE("a call that succeeds passes") {
  CUDA_CHECK(cudaSuccess);
  CUBLAS_CHECK(CUBLAS_STATUS_SUCCESS);
  NCCL_CHECK(ncclSuccess);
  NCCL_CHECK(ncclInProgress);
}

TEST_CASE("CUDA_CHECK tells the call, its place and the runtime's words, and clears the error") {
  const int line = __LINE__ + 1;
  const Thrown thrown = thrown_by([] { CUDA_CHECK(cudaSetDevice(12345)); });
  CHECK(thrown.code != ExitCode::ok);
  CHECK(contains(thrown.message, "[cuda] cudaSetDevice(12345) at cuda_check_test.cpp:" +
                                     std::to_string(line) + ": "));
  CHECK(contains(thrown.message, "(cudaError"));
  int driver = 0;
  REQUIRE(cudaDriverGetVersion(&driver) == cudaSuccess);
  // Without a driver every call but the one above fails again.
  if (driver != 0) CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("CUDA_CHECK tells our mistakes from the world's") {
  const Thrown ours = thrown_by([] { CUDA_CHECK(cudaErrorIllegalAddress); });
  CHECK(ours.code == ExitCode::internal);
  CHECK(contains(ours.message, "illegal memory access"));
  const Thrown memory = thrown_by([] { CUDA_CHECK(cudaErrorMemoryAllocation); });
  CHECK(memory.code == ExitCode::unavailable);
  CHECK(contains(memory.message, "out of memory (cudaErrorMemoryAllocation)"));
}

TEST_CASE("CUBLAS_CHECK tells the call and the library's words") {
  const Thrown ours = thrown_by([] { CUBLAS_CHECK(CUBLAS_STATUS_INVALID_VALUE); });
  CHECK(ours.code == ExitCode::internal);
  CHECK(contains(ours.message, "[cublas] CUBLAS_STATUS_INVALID_VALUE at cuda_check_test.cpp:"));
  const Thrown memory = thrown_by([] { CUBLAS_CHECK(CUBLAS_STATUS_ALLOC_FAILED); });
  CHECK(memory.code == ExitCode::unavailable);
  CHECK(contains(memory.message, "(CUBLAS_STATUS_ALLOC_FAILED)"));
}

TEST_CASE("NCCL_CHECK tells the call and whose fault it is") {
  int count = 0;
  const Thrown ours = thrown_by([&] { NCCL_CHECK(ncclCommCount(nullptr, &count)); });
  CHECK(ours.code == ExitCode::internal);
  CHECK(contains(ours.message, "[nccl] ncclCommCount(nullptr, &count) at cuda_check_test.cpp:"));
  CHECK(contains(ours.message, "invalid argument"));
  CHECK(thrown_by([] { NCCL_CHECK(ncclRemoteError); }).code == ExitCode::peer);
  CHECK(thrown_by([] { NCCL_CHECK(ncclSystemError); }).code == ExitCode::peer);
  CHECK(thrown_by([] { NCCL_CHECK(ncclUnhandledCudaError); }).code == ExitCode::unavailable);
}
