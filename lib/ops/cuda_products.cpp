#include "ops/cuda_products.h"

#include "device/cuda_device.h"

namespace trainctl {

const CudaProducts& cuda_products() {
  static const CudaProducts& part = *static_cast<const CudaProducts*>(
      cuda_module_part("trainctl_cuda_products", sizeof(CudaProducts)));
  return part;
}

}  // namespace trainctl
