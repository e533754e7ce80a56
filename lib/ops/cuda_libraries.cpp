#include "ops/cuda_libraries.h"

#include "device/cuda_device.h"

namespace trainctl {

const CudaAttention& cuda_attention() {
  static const CudaAttention& part = *static_cast<const CudaAttention*>(
      open_cuda_part(cuda_module_file(), "trainctl_cuda_attention", sizeof(CudaAttention)));
  return part;
}

const CudaProducts& cuda_products() {
  static const CudaProducts& part = *static_cast<const CudaProducts*>(
      cuda_module_part("trainctl_cuda_products", sizeof(CudaProducts)));
  return part;
}

}  // namespace trainctl
