// The product in register tiles of our own, for levels whose vector instructions they are written
// for. Packs both operands into scratch, so that every shape, type and transposition runs at nearly
// the same rate and nothing is allocated. Internal to lib/ops.
#pragma once

#include "ops/matmul.h"

namespace trainctl {

/// m, n and k must be positive. Returns false, having done nothing, where the level has no tiles or
/// the product is better left to the library. Each element's sum has one order, whatever the
/// thread count.
bool matmul_tiles(const OpContext& context, const Matmul& args);

/// Whether a product is for tiles whatever its extents are: the library keeps something for each
/// combination of extents, and its order of sums may follow from the thread count.
constexpr bool only_for_tiles(const Matmul& args) { return args.varies || args.by_shape; }

}  // namespace trainctl
