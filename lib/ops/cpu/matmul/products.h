// The implementations of matrix products on the CPU. Internal to lib/ops.
#pragma once

#include "ops/matmul.h"

namespace trainctl {

// Products by oneDNN: for every machine, and for shapes and types that the tile kernels leave to
// it. Internal to lib/ops.

/// m, n and k must be positive. Each thread makes the primitives of a shape on the first call and
/// keeps them.
void matmul_library(const OpContext& context, const Matmul& args);

/// Whether oneDNN can use several threads if that pays off. If strips of the product would not be
/// contiguous in memory, it runs on one thread.
bool library_divides(const Matmul& args);

// Products in our own register tiles, for levels with the required vector instructions. Both
// operands are packed into scratch, so that all shapes, types and transpositions run at nearly the
// same rate and nothing is allocated. Internal to lib/ops.

/// m, n and k must be positive. Returns false, with nothing done, if the level has no tiles or the
/// product is better left to the library. The order of each sum is independent of the number of
/// threads.
bool matmul_tiles(const OpContext& context, const Matmul& args);

/// Whether a product must use tiles regardless of its extents: the library caches data for each
/// combination of extents, and its order of sums may depend on the number of threads.
constexpr bool only_for_tiles(const Matmul& args) { return args.varies || args.by_shape; }

// bf16 products in AMX tile registers. Internal to lib/ops/cpu.

/// Returns false, with nothing done, if the library is better or scratch is too small. m, n and k
/// must be positive, a and b bf16.
bool matmul_amx(const OpContext& context, const Matmul& args);

// Products of bf16 or fp16 matrices through fp32: blocks of the operands are converted in scratch,
// multiplied by the library, summed in scratch, and rounded once. For levels without our own tiles
// and for shapes that these leave, because some versions of oneDNN cannot multiply fp16, and none
// can multiply bf16 below AVX-512. Internal to lib/ops.

/// a and b must be bf16 or fp16; m, n and k must be positive.
void matmul_widened(const OpContext& context, const Matmul& args);

}  // namespace trainctl
