// The part of the CUDA module for ops/: its kernel table.
#include "ops/cuda/kernels.h"

#include "device/cuda_device.h"
#include "ops/cuda/cublas/product.h"

namespace trainctl {
namespace {

Kernels built_kernels() {
  Kernels table{
      .name = "cuda",
#define KERNEL(entry, Args) .entry = cuda::entry,
#include "ops/kernels.def"
#undef KERNEL
  };
  table.attention_forward = cuda::chosen_attention_forward;
  table.attention_backward = cuda::chosen_attention_backward;
  return table;
}

const Kernels cuda_kernels = built_kernels();

}  // namespace
}  // namespace trainctl

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_kernels() {
  return {&trainctl::cuda_kernels, sizeof(trainctl::Kernels)};
}

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_attention() {
  return {&trainctl::cuda::attention_part_of_module, sizeof(trainctl::CudaAttention)};
}

extern "C" [[gnu::visibility("default")]] trainctl::CudaModulePart trainctl_cuda_products() {
  return {&trainctl::cuda::products_part_of_module, sizeof(trainctl::CudaProducts)};
}
