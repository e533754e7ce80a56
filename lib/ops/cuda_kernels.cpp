#include "ops/cuda_kernels.h"

#include "device/cuda_device.h"

namespace trainctl {

const Kernels& cuda_module_kernels() {
  return *static_cast<const Kernels*>(cuda_module_part("trainctl_cuda_kernels", sizeof(Kernels)));
}

}  // namespace trainctl
