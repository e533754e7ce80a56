// Keys and values of context-parallel ranks, gathered before attention, and passed on around a ring
// while the ranks attend to those that they have.
#pragma once

#include "bench/layer_overlap.h"

namespace trainctl {

/// Two context-parallel ranks, one micro-batch of the configuration's size, on a wire on which the
/// keys and values of a rank take as long as attention to them. The waits of F are compared, where
/// nothing else is exchanged; both send the same bytes.
LayerOverlapInput context_overlap(const Config& config);

}  // namespace trainctl
