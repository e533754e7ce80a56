#include "ops/cpu/kernels.h"
#include "ops/cpu/matmul/library.h"
#include "ops/cpu/matmul/tiles.h"
#include "ops/cpu/matmul/widened.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

/// Packing costs time, but not memory traffic, while everything stays in cache: there oneDNN, which
/// packs less, is faster by a tenth; for larger operands the tiles are.
bool stays_in_cache(const Matmul& args) {
  constexpr std::int64_t cache_bytes = std::int64_t{4} << 20;
  return args.a.bytes() + args.b.bytes() + args.c.bytes() <= cache_bytes;
}

}  // namespace

void matmul_cpu(const OpContext& context, const Matmul& args) {
  const MatmulShape shape = shape_of(args);
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) {
    matmul_plain(context, args);  // leaves c, or sets it to the bias or zero
    return;
  }
  const bool half = shape.operand == DType::f16;
  if ((half || !stays_in_cache(args)) && matmul_tiles(context, args)) return;
  if (half) {
    matmul_widened(context, args);
  } else {
    matmul_library(context, args);
  }
}

}  // namespace trainctl
