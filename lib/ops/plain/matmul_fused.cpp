// One after the other, by the other kernels of the context's table: the CPU's fast ones too.
#include "base/time_spent.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

void multiply(const OpContext& context, const Matmul& args) {
  const AddTime timed(&TimeSpent::products);
  context.kernels->matmul(context, args);
}

}  // namespace

void matmul_gelu_plain(const OpContext& context, const MatmulGelu& args) {
  multiply(context, args.up);
  context.kernels->activation_forward(context,
                                      {.kind = Activation::gelu, .x = args.up.c, .y = args.act});
}

void matmul_gelu_backward_plain(const OpContext& context, const MatmulGeluBackward& args) {
  multiply(context, args.dx);
  context.kernels->activation_backward(
      context, {.kind = Activation::gelu, .x = args.x, .dy = args.dx.c, .dx = args.dx.c});
}

void matmul_column_sums_plain(const OpContext& context, const MatmulColumnSums& args) {
  context.kernels->bias_gradient(context, {.dy = args.product.a, .db = args.sums});
  multiply(context, args.product);
}

void matmul_batch_plain(const OpContext& context, const MatmulBatch& args) {
  for (const MatmulBatch::One& one : args.list) {
    if (one.sums.empty()) {
      multiply(context, one.product);
    } else {
      context.kernels->matmul_column_sums(context, {.product = one.product, .sums = one.sums});
    }
  }
}

}  // namespace trainctl
