#include "ops/cpu/level.h"

#include "base/error.h"
#include "ops/cpu/matmul/products.h"
#include "ops/cpu_level.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

/// Implementations of a product: oneDNN; through fp32 (matmul/widened.h); register tiles
/// (matmul/tiles.h), for any size, or only if the operands do not fit into cache.
enum class ProductPath { library, widened, tiles, large_tiles };

/// The preferred implementation for an operand type, and the one for products that it refuses.
struct Ways {
  ProductPath first;
  ProductPath rest;
};

struct ProductTable {
  Ways fp32, bf16, fp16;
};

/// The fastest implementations as measured. Below AVX-512, oneDNN allocates in every product and
/// cannot multiply bf16; below AVX512-BF16 it is slow for bf16. Some cannot multiply fp16.
constexpr ProductTable products_at(CpuLevel level) {
  constexpr Ways library{ProductPath::library, ProductPath::library};
  constexpr Ways widened{ProductPath::widened, ProductPath::widened};
  constexpr Ways large_tiles{ProductPath::large_tiles, ProductPath::library};
  constexpr Ways tiles{ProductPath::tiles, ProductPath::widened};
  switch (level) {
    case CpuLevel::plain:
    case CpuLevel::v3:
      return {.fp32 = {ProductPath::tiles, ProductPath::library}, .bf16 = tiles, .fp16 = tiles};
    case CpuLevel::avx512: return {.fp32 = large_tiles, .bf16 = tiles, .fp16 = tiles};
    case CpuLevel::avx512_bf16:
    case CpuLevel::amx: return {.fp32 = large_tiles, .bf16 = large_tiles, .fp16 = tiles};
  }
  return {.fp32 = library, .bf16 = widened, .fp16 = widened};
}

/// Whether operands stay in cache. Packing takes time but no memory traffic then, so oneDNN, which
/// packs less, is faster by a tenth. Tiles are faster for larger operands, and for products for
/// which the library would use a single thread.
bool stays_in_cache(const Matmul& args) {
  constexpr std::int64_t cache_bytes = std::int64_t{4} << 20;
  return args.a.bytes() + args.b.bytes() + args.c.bytes() <= cache_bytes;
}

bool multiply_in_tiles(CpuLevel level, const OpContext& context, const Matmul& args) {
  return part_of(level, args.a.dtype).tiles(context, args);
}

/// Multiplies by `way`. Returns false if it leaves the product to another implementation.
bool multiply(ProductPath way, CpuLevel level, const OpContext& context, const Matmul& args) {
  switch (way) {
    case ProductPath::library: matmul_library(context, args); return true;
    case ProductPath::widened: part_of(level, DType::f32).widened(context, args); return true;
    case ProductPath::large_tiles:
      return (!stays_in_cache(args) || !library_divides(args)) &&
             multiply_in_tiles(level, context, args);
    case ProductPath::tiles: return multiply_in_tiles(level, context, args);
  }
  return false;
}

[[noreturn]] void fail_by_shape() {
  throw Error(ExitCode::internal, "[matmul] the context has no memory for a product by its shape");
}

template <CpuLevel level>
void matmul_cpu(const OpContext& context, const Matmul& args) {
  constexpr ProductTable table = products_at(level);
  const MatmulShape shape = shape_of(args);
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) {
    matmul_plain(context, args);  // leaves c unchanged, or sets it to the bias or zero
    return;
  }
  const Ways ways = shape.operand == DType::bf16  ? table.bf16
                    : shape.operand == DType::f16 ? table.fp16
                                                  : table.fp32;
  if (only_for_tiles(args) && multiply(ProductPath::tiles, level, context, args)) return;
  if (args.by_shape) fail_by_shape();
  if (!multiply(ways.first, level, context, args)) multiply(ways.rest, level, context, args);
}

}  // namespace

Kernel<Matmul> matmul_kernel(CpuLevel level) {
  switch (level) {
    case CpuLevel::plain:
    case CpuLevel::v3: break;
    case CpuLevel::avx512: return matmul_cpu<CpuLevel::avx512>;
    case CpuLevel::avx512_bf16: return matmul_cpu<CpuLevel::avx512_bf16>;
    case CpuLevel::amx: return matmul_cpu<CpuLevel::amx>;
  }
  return matmul_cpu<CpuLevel::v3>;
}

}  // namespace trainctl
