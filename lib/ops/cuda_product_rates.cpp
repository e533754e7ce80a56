#include "ops/cuda_product_rates.h"

#include "device/cuda_device.h"

namespace trainctl {

const CudaProductRates& cuda_product_rates() {
  static const CudaProductRates& part = *static_cast<const CudaProductRates*>(
      cuda_module_part("trainctl_cuda_product_rates", sizeof(CudaProductRates)));
  return part;
}

}  // namespace trainctl
