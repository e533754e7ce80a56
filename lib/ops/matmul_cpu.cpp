#include "ops/kernels_cpu.h"
#include "ops/kernels_plain.h"
#include "ops/matmul_library.h"
#include "ops/matmul_tiles.h"

namespace trainctl {

void matmul_cpu(const OpContext& context, const Matmul& args) {
  const MatmulShape shape = shape_of(args);
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) {
    matmul_plain(context, args);  // leaves c, or sets it to the bias or zero
    return;
  }
  if (!matmul_tiles(context, args)) matmul_library(context, args);
}

}  // namespace trainctl
