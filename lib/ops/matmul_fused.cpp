#include "ops/matmul_fused.h"

#include "ops/check.h"

namespace trainctl {

void matmul_gelu(const OpContext& context, const MatmulGelu& args) {
  constexpr std::string_view op = "matmul_gelu";
  begin_product(args.up);
  check(!args.up.accumulate && args.up.c.dtype == args.up.a.dtype, op,
        "up must be overwritten and of the type of its operands", {{"up", args.up.c}});
  check(!args.act.empty() && same_kind(args.act, args.up.c), op, "act must be as up",
        {{"act", args.act}, {"up", args.up.c}});
  dispatch(context, &Kernels::matmul_gelu, args, op);
}

void matmul_gelu_backward(const OpContext& context, const MatmulGeluBackward& args) {
  constexpr std::string_view op = "matmul_gelu_backward";
  begin_product(args.dx);
  check(!args.dx.accumulate && args.dx.bias.empty() && args.dx.c.dtype == args.dx.a.dtype, op,
        "dx must be overwritten, without bias, and of the type of its operands",
        {{"dx", args.dx.c}, {"bias", args.dx.bias}});
  check(!args.x.empty() && same_kind(args.x, args.dx.c) && args.x.data != args.dx.c.data, op,
        "x must be as dx, in other memory", {{"x", args.x}, {"dx", args.dx.c}});
  dispatch(context, &Kernels::matmul_gelu_backward, args, op);
}

void begin_column_sums(const MatmulColumnSums& args) {
  constexpr std::string_view op = "matmul_column_sums";
  begin_product(args.product);
  check(args.product.transpose_a && args.product.bias.empty() && args.product.c.dtype == DType::f32,
        op, "the product must be a^T op(b) in fp32, without bias",
        {{"a", args.product.a}, {"c", args.product.c}, {"bias", args.product.bias}});
  check(is_vector(args.sums, args.product.c.shape[0], DType::f32), op,
        "sums must be an fp32 vector with one element per row of c",
        {{"sums", args.sums}, {"c", args.product.c}});
}

void matmul_column_sums(const OpContext& context, const MatmulColumnSums& args) {
  begin_column_sums(args);
  dispatch(context, &Kernels::matmul_column_sums, args, "matmul_column_sums");
}

}  // namespace trainctl
