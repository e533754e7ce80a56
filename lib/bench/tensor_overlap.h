// The collectives of tensor-parallel ranks, waited for and beside products.
#pragma once

#include "bench/layer_overlap.h"

namespace trainctl {

/// Two ranks with sequence parallelism, one micro-batch of the configuration's size, on a wire on
/// which a transfer takes as long as the smallest product of a block.
LayerOverlapInput tensor_overlap(const Config& config);

}  // namespace trainctl
