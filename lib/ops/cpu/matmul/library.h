// The product through oneDNN: for every machine, and for the shapes and types that the tile kernels
// leave to it. Internal to lib/ops.
#pragma once

#include "ops/matmul.h"

namespace trainctl {

/// m, n and k must be positive. Primitives are made on the first call of a shape in a thread and
/// kept.
void matmul_library(const OpContext& context, const Matmul& args);

/// False where a product is worth several threads and its strips would not be dense in memory: then
/// it runs on one.
bool library_divides(const Matmul& args);

}  // namespace trainctl
