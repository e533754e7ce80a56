// The module's part for ops/: its table of kernels. Entries not named are null: not built yet.
#include "ops/cuda/kernels.h"

#include "device/cuda_device.h"

namespace trainctl {
namespace {

Kernels built_kernels() {
  Kernels table{};
  table.name = "cuda";
  table.matmul = cuda::matmul;
  table.rmsnorm_forward = cuda::rmsnorm_forward;
  table.rmsnorm_backward = cuda::rmsnorm_backward;
  table.adamw = cuda::adamw;
  return table;
}

const Kernels cuda_kernels = built_kernels();

}  // namespace
}  // namespace trainctl

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_kernels() {
  return {&trainctl::cuda_kernels, sizeof(trainctl::Kernels)};
}
