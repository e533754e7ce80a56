// Fused products without a fused kernel: each calls the kernels of its steps one by one, from
// OpContext::kernels, so that these may be the fast ones of the CPU.
#include "base/time_spent.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

void multiply(const OpContext& context, const Matmul& args) {
  const AddTime timed(&TimeSpent::products);
  context.kernels->matmul(context, args);
}

}  // namespace

void matmul_gelu_plain(const OpContext& context, const FusedMatmul& args) {
  multiply(context, args.product);
  context.kernels->activation_forward(
      context, {.kind = Activation::gelu, .x = args.product.c, .y = args.other});
}

void matmul_gelu_backward_plain(const OpContext& context, const FusedMatmul& args) {
  const Tensor& dx = args.product.c;
  multiply(context, args.product);
  context.kernels->activation_backward(
      context, {.kind = Activation::gelu, .x = args.other, .dy = dx, .dx = dx});
}

void matmul_column_sums_plain(const OpContext& context, const FusedMatmul& args) {
  context.kernels->bias_gradient(context, {.dy = args.product.a, .db = args.other});
  multiply(context, args.product);
}

void matmul_batch_plain(const OpContext& context, const MatmulBatch& args) {
  for (const FusedMatmul& one : args) {
    if (one.other.empty()) {
      multiply(context, one.product);
    } else {
      context.kernels->matmul_column_sums(context, one);
    }
  }
}

}  // namespace trainctl
