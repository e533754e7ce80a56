#include "ops/matmul.h"

#include "base/time_spent.h"
#include "ops/check.h"

namespace trainctl {

namespace {
thread_local std::vector<Matmul>* recording = nullptr;
}

void record_matmuls(std::vector<Matmul>* list) { recording = list; }

MatmulShape shape_of(const Matmul& args) {
  return {.m = args.c.shape[0],
          .n = args.c.shape[1],
          .k = args.transpose_a ? args.a.shape[0] : args.a.shape[1],
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .accumulate = args.accumulate,
          .bias = !args.bias.empty(),
          .operand = args.a.dtype,
          .result = args.c.dtype};
}

void begin_product(const Matmul& args) {
  constexpr std::string_view op = "matmul";
  const Tensor& a = args.a;
  const Tensor& b = args.b;
  const Tensor& c = args.c;
  check(is_matrix(a) && is_matrix(b) && is_matrix(c), op, "a, b and c must be matrices",
        {{"a", a}, {"b", b}, {"c", c}});
  check(is_float(a) && a.dtype == b.dtype, op, "a and b must both be fp32, bf16 or fp16",
        {{"a", a}, {"b", b}});
  check(c.dtype == DType::f32 || c.dtype == a.dtype, op,
        "c must be fp32, or of the type of a and b", {{"a", a}, {"b", b}, {"c", c}});
  const Shape left = args.transpose_a ? Shape{a.shape[1], a.shape[0]} : a.shape;
  const Shape right = args.transpose_b ? Shape{b.shape[1], b.shape[0]} : b.shape;
  check(left[1] == right[0] && c.shape == Shape{left[0], right[1]}, op,
        args.transpose_a   ? (args.transpose_b ? "a^T b^T must fit c" : "a^T b must fit c")
        : args.transpose_b ? "a b^T must fit c"
                           : "a b must fit c",
        {{"a", a}, {"b", b}, {"c", c}});
  const bool takes_bias = !args.accumulate && !args.by_shape;
  check(args.bias.empty() || (is_vector(args.bias, right[1], DType::f32) && takes_bias), op,
        "bias must be an fp32 vector with one element per column of c, without accumulate and "
        "by_shape",
        {{"bias", args.bias}, {"c", c}});
  if (recording != nullptr) recording->push_back(args);
}

void matmul(const OpContext& context, const Matmul& args) {
  begin_product(args);
  const AddTime timed(&TimeSpent::products);
  dispatch(context, &Kernels::matmul, args, "matmul");
}

void matmul_gelu(const OpContext& context, const FusedMatmul& args) {
  constexpr std::string_view op = "matmul_gelu";
  const auto& [up, act] = args;
  begin_product(up);
  check(!up.accumulate && up.c.dtype == up.a.dtype, op,
        "up must be overwritten and of the type of its operands", {{"up", up.c}});
  check(is_like(act, up.c), op, "act must be as up", {{"act", act}, {"up", up.c}});
  dispatch(context, &Kernels::matmul_gelu, args, op);
}

void matmul_gelu_backward(const OpContext& context, const FusedMatmul& args) {
  constexpr std::string_view op = "matmul_gelu_backward";
  const auto& [dx, x] = args;
  begin_product(dx);
  check(!dx.accumulate && dx.bias.empty() && dx.c.dtype == dx.a.dtype, op,
        "dx must be overwritten, without bias, and of the type of its operands",
        {{"dx", dx.c}, {"bias", dx.bias}});
  check(is_like(x, dx.c) && x.data != dx.c.data, op, "x must be as dx, in other memory",
        {{"x", x}, {"dx", dx.c}});
  dispatch(context, &Kernels::matmul_gelu_backward, args, op);
}

void begin_column_sums(const FusedMatmul& args) {
  constexpr std::string_view op = "matmul_column_sums";
  begin_product(args.product);
  check(args.product.transpose_a && args.product.bias.empty() && args.product.c.dtype == DType::f32,
        op, "the product must be a^T op(b) in fp32, without bias",
        {{"a", args.product.a}, {"c", args.product.c}, {"bias", args.product.bias}});
  check(is_vector(args.other, args.product.c.shape[0], DType::f32), op,
        "sums must be an fp32 vector with one element per row of c",
        {{"sums", args.other}, {"c", args.product.c}});
}

void matmul_column_sums(const OpContext& context, const FusedMatmul& args) {
  begin_column_sums(args);
  dispatch(context, &Kernels::matmul_column_sums, args, "matmul_column_sums");
}

void matmul_batch(const OpContext& context, const MatmulBatch& args) {
  for (const FusedMatmul& one : args) {
    one.other.empty() ? begin_product(one.product) : begin_column_sums(one);
  }
  dispatch(context, &Kernels::matmul_batch, args, "matmul_batch");
}

}  // namespace trainctl
