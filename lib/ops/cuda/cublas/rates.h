// The part of the module that multiplies in forms that no run computes in (CudaProductRates).
#pragma once

#include "ops/cuda_product_rates.h"

namespace trainctl::cuda {

extern const CudaProductRates product_rates_part_of_module;

}  // namespace trainctl::cuda
