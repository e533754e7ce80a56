// The products that a rank's thread notes, their fastest algorithms, and the part of the module
// that offers both (CudaProducts).
#pragma once

#include "ops/cuda_products.h"

namespace trainctl::cuda {

/// Of every product with fixed extents, once it is enqueued; nothing unless the thread notes them.
void note_call(const ProductKey& key);

extern const CudaProducts products_part_of_module;

}  // namespace trainctl::cuda
