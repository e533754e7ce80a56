// The exchange of rows between ranks with different experts, waited for, and in chunks beside the
// products of experts or beside passes of another micro-batch.
#pragma once

#include "bench/layer_overlap.h"

namespace trainctl {

/// Two ranks with half of the experts each, one micro-batch of the configuration's size, on a wire
/// on which the rows of a layer go one way in half of the time of the products of its experts. In
/// two chunks unless the configuration has more. A model without experts cannot be split so.
LayerOverlapInput expert_overlap(const Config& config);

/// The same on the same kind of wire with four micro-batches: three of four pairs of passes run
/// beside each other.
LayerOverlapInput pass_overlap(const Config& config);

}  // namespace trainctl
