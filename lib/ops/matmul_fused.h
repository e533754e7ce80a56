// A matrix product and what comes right before or after it, which some backends do as one; the
// others do one after the other.
//   matmul_gelu: up = op(a) op(b) + bias; act = GELU(up)
//   matmul_gelu_backward: dx = GELU'(x) (op(a) op(b)), element by element
//   matmul_column_sums: c = a^T op(b), or c += it; sums += the sums of a's columns. With a = dy:
//   the gradients of a linear layer's weight and bias.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"
#include "ops/matmul.h"

namespace trainctl {

struct MatmulGelu {
  Matmul up;   // not accumulated; up.c is of the type of a and b
  Tensor act;  // as up.c, overwritten: GELU of up.c before or after it is rounded to its type
};

struct MatmulGeluBackward {
  Matmul dx;  // without bias, not accumulated; dx.c is of the type of a and b
  Tensor x;   // as dx.c: what GELU was applied to; other memory
};

struct MatmulColumnSums {
  Matmul product;  // with transpose_a, without bias; c is fp32
  Tensor sums;     // [m] fp32, accumulated
};

/// They throw Error{internal} "[matmul_gelu] ..." as matmul does, and count as its products for
/// record_matmuls.
void matmul_gelu(const OpContext& context, const MatmulGelu& args);
void matmul_gelu_backward(const OpContext& context, const MatmulGeluBackward& args);
void matmul_column_sums(const OpContext& context, const MatmulColumnSums& args);

/// What an op with such a product begins with, as begin_product.
void begin_column_sums(const MatmulColumnSums& args);

}  // namespace trainctl
