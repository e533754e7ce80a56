// The ways to multiply matrices on the CPU. Internal to lib/ops.
#pragma once

#include "ops/matmul.h"

namespace trainctl {

// The product through oneDNN: for every machine, and for the shapes and types that the tile kernels
// leave to it. Internal to lib/ops.

/// m, n and k must be positive. Primitives are made on the first call of a shape in a thread and
/// kept.
void matmul_library(const OpContext& context, const Matmul& args);

/// False where a product is worth several threads and its strips would not be dense in memory: then
/// it runs on one.
bool library_divides(const Matmul& args);

// The product in register tiles of our own, for levels whose vector instructions they are written
// for. Packs both operands into scratch, so that every shape, type and transposition runs at nearly
// the same rate and nothing is allocated. Internal to lib/ops.

/// m, n and k must be positive. Returns false, having done nothing, where the level has no tiles or
/// the product is better left to the library. Each element's sum has one order, whatever the
/// thread count.
bool matmul_tiles(const OpContext& context, const Matmul& args);

/// Whether a product is for tiles whatever its extents are: the library keeps something for each
/// combination of extents, and its order of sums may follow from the thread count.
constexpr bool only_for_tiles(const Matmul& args) { return args.varies || args.by_shape; }

// Products of bf16 in the tile registers of AMX. Internal to lib/ops/cpu.

/// False, having done nothing, where the library is better or scratch is too small. m, n and k must
/// be positive, a and b bf16.
bool matmul_amx(const OpContext& context, const Matmul& args);

// The product of bf16 or fp16 matrices through fp32: blocks of the operands are converted in
// scratch, multiplied by the library and summed there, and rounded once. For levels without tiles
// of our own and for shapes that those leave, since not every oneDNN multiplies fp16, and none
// multiplies bf16 below AVX-512. Internal to lib/ops.

/// a and b are bf16 or fp16; m, n and k must be positive.
void matmul_widened(const OpContext& context, const Matmul& args);

}  // namespace trainctl
