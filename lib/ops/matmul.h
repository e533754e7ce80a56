// c = op(a) * op(b) [+ bias] or c += op(a) * op(b), op(x) = x or its transpose.
// a, b: both fp32, bf16 or fp16; products are accumulated in fp32. c: fp32, or as a and b. Linear
// layers: forward y[t,o] = x[t,i] w[o,i]^T; input gradient dx = dy w; weight
// gradient dw += dy^T x.
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
  bool varies = false;      // the extents differ from call to call: nothing is kept for them
  // The order of all sums follows from extents, transposes and types alone, on one kind of
  // processor. Not with bias; on a device, operands begin at multiples of 64 bytes.
  bool by_shape = false;
  const float* scale_a =
      nullptr;  // per-operand scales for 8-bit operands; must be null for the types above
  const float* scale_b = nullptr;
};

/// Throws Error{internal} "[matmul] ..." when shapes or dtypes do not fit.
void matmul(const OpContext& context, const Matmul& args);

/// One product's extents.
struct MatmulShape {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate, bias;
  DType operand, result;
  friend bool operator==(const MatmulShape&, const MatmulShape&) = default;
};

MatmulShape shape_of(const Matmul& args);

/// Begins every op with a product: throws as matmul does, and notes the product for record_matmuls.
void begin_product(const Matmul& args);

/// From now on every product of the calling thread is also appended to `list`; null ends that.
void record_matmuls(std::vector<Matmul>* list);

// A matrix product and what comes right before or after it, which some backends do as one; the
// others do one after the other.
//   matmul_gelu: up = op(a) op(b) + bias; act = GELU(up)
//   matmul_gelu_backward: dx = GELU'(x) (op(a) op(b)), element by element
//   matmul_column_sums: c = a^T op(b), or c += it; sums += the sums of a's columns. With a = dy:
//   the gradients of a linear layer's weight and bias.

/// A product and the other tensor of the operation next to it.
struct FusedMatmul {
  // matmul_gelu: its c is `up`, of the type of a and b, not accumulated. matmul_gelu_backward: its
  // c is `dx`, the same, and without bias. matmul_column_sums: with transpose_a, without bias; c is
  // fp32.
  Matmul product;
  // matmul_gelu: `act`, as c, overwritten: GELU of c before or after it is rounded to its type.
  // matmul_gelu_backward: `x`, as c, in other memory. matmul_column_sums: `sums`, [m] fp32,
  // accumulated.
  Tensor other{};
};

/// They throw Error{internal} "[matmul_gelu] ..." as matmul does, and count as its products for
/// record_matmuls.
void matmul_gelu(const OpContext& context, const FusedMatmul& args);
void matmul_gelu_backward(const OpContext& context, const FusedMatmul& args);
void matmul_column_sums(const OpContext& context, const FusedMatmul& args);

/// Begins an op with such a product, as begin_product does.
void begin_column_sums(const FusedMatmul& args);

// Products that do not depend on one another, such as those of q, k and v, which have the same
// input. A device does as one launch those that follow one another with the same extents and lie
// equally far apart; the others, and every other backend, do one after the other. The results are
// those of matmul and matmul_column_sums.

/// With `other` it is as in matmul_column_sums. No result is another's operand or result.
using MatmulBatch = std::span<const FusedMatmul>;

/// Throws as matmul and matmul_column_sums do.
void matmul_batch(const OpContext& context, const MatmulBatch& args);

}  // namespace trainctl
