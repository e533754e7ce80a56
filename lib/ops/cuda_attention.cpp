#include "ops/cuda_attention.h"

#include "device/cuda_device.h"

namespace trainctl {

const CudaAttention& cuda_attention() {
  static const CudaAttention& part = *static_cast<const CudaAttention*>(
      open_cuda_part(cuda_module_file(), "trainctl_cuda_attention", sizeof(CudaAttention)));
  return part;
}

}  // namespace trainctl
