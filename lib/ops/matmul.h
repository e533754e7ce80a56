// c = op(a) * op(b) [+ bias] or c += op(a) * op(b), op(x) = x or its transpose.
// a, b: both fp32, bf16 or fp16; products are accumulated in fp32. c: fp32, or as a and b. Linear
// layers: forward y[t,o] = x[t,i] w[o,i]^T; input gradient dx = dy w; weight
// gradient dw += dy^T x.
#pragma once

#include <cstdint>
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

/// What every op with a product begins with: throws as matmul does, and notes the product for
/// record_matmuls.
void begin_product(const Matmul& args);

/// From now on every product of the calling thread is also appended to `list`; null ends that.
void record_matmuls(std::vector<Matmul>* list);

}  // namespace trainctl
