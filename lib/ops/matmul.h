// c = op(a) * op(b) [+ bias] or c += op(a) * op(b), op(x) = x or its transpose. a and b are both
// fp32, bf16 or fp16; products are accumulated in fp32. c is fp32, or of the type of a and b.
// Linear layers: forward y[t,o] = x[t,i] w[o,i]^T; input gradient dx = dy w; weight gradient dw +=
// dy^T x.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct Matmul {
  Tensor a;       // [m, k], or [k, m] with transpose_a
  Tensor b;       // [k, n], or [n, k] with transpose_b
  Tensor c;       // [m, n]
  Tensor bias{};  // optional [n] fp32, added to every row; not with accumulate
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // c += instead of c =
  bool varies = false;      // extents differ between calls, so nothing is cached for them
  // Fixes the order of all sums by extents, transposes and types, for one kind of processor. Not
  // with bias. On a device, operands must be aligned to 64 bytes.
  bool by_shape = false;
};

/// Throws Error{internal} "[matmul] ..." if shapes or types do not fit.
void matmul(const OpContext& context, const Matmul& args);

/// The extents and types of a product.
struct MatmulShape {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate, bias;
  DType operand, result;
  friend bool operator==(const MatmulShape&, const MatmulShape&) = default;
};

MatmulShape shape_of(const Matmul& args);

/// Starts an op that contains a product: checks it like matmul, and notes it for record_matmuls.
void begin_product(const Matmul& args);

/// Appends later products of the calling thread to `list`; null stops this.
void record_matmuls(std::vector<Matmul>* list);

// A matrix product together with an operation right before or after it. Some backends compute both
// in one kernel, others one after the other.
//   matmul_gelu: up = op(a) op(b) + bias; act = GELU(up)
//   matmul_gelu_backward: dx = GELU'(x) (op(a) op(b)), elementwise
//   matmul_column_sums: c = a^T op(b) or c += a^T op(b); sums += column sums of a. With a = dy:
//   the gradients of a linear layer's weight and bias.

/// A product and the other tensor of the operation next to it.
struct FusedMatmul {
  // The product's c. matmul_gelu: `up`, of the type of a and b, not accumulated.
  // matmul_gelu_backward: `dx`, of the type of a and b, not accumulated, without bias.
  // matmul_column_sums: fp32, with transpose_a, without bias.
  Matmul product;
  // matmul_gelu: `act`, shaped as c, overwritten: GELU of c before or after it is rounded.
  // matmul_gelu_backward: `x`, shaped as c, in other memory. matmul_column_sums: `sums`, [m] fp32,
  // accumulated.
  Tensor other{};
};

/// Throw Error{internal} "[matmul_gelu] ..." like matmul. Their products are noted for
/// record_matmuls.
void matmul_gelu(const OpContext& context, const FusedMatmul& args);
void matmul_gelu_backward(const OpContext& context, const FusedMatmul& args);
void matmul_column_sums(const OpContext& context, const FusedMatmul& args);

/// Starts an op that contains such a product, like begin_product.
void begin_column_sums(const FusedMatmul& args);

// Independent products, such as those of q, k and v, which have the same input. A device computes
// consecutive products in one launch if their extents are equal and their operands equally far
// apart. Other products, and all products on other backends, are computed one after the other. The
// results are those of matmul and matmul_column_sums.

/// With `other`, as in matmul_column_sums. No result may overlap another operand or result.
using MatmulBatch = std::span<const FusedMatmul>;

/// Throws like matmul and matmul_column_sums.
void matmul_batch(const OpContext& context, const MatmulBatch& args);

}  // namespace trainctl
