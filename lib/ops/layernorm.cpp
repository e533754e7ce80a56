#include "ops/layernorm.h"

#include "base/scratch.h"
#include "ops/check.h"

namespace trainctl {

void layernorm_forward(const OpContext& context, const LayerNormForward& args) {
  constexpr std::string_view op = "layernorm";
  const std::int64_t hidden = args.x.columns();
  check(!args.x.empty() && is_float(args.x) && args.x.shape.rank() == 2, op,
        "x must be a matrix of fp32, bf16 or fp16", {{"x", args.x}});
  check(!args.y.empty() && same_kind(args.x, args.y), op, "y must be as x",
        {{"x", args.x}, {"y", args.y}});
  check(args.residual.empty() ||
            (same_kind(args.x, args.residual) && !args.sum.empty() && same_kind(args.x, args.sum)),
        op, "residual and sum must be as x",
        {{"x", args.x}, {"residual", args.residual}, {"sum", args.sum}});
  check(is_vector(args.weight, hidden, DType::f32) && is_vector(args.bias, hidden, DType::f32), op,
        "weight and bias must be fp32 vectors with one element per column of x",
        {{"x", args.x}, {"weight", args.weight}, {"bias", args.bias}});
  check(is_vector(args.mean, args.x.rows(), DType::f32) &&
            is_vector(args.rstd, args.x.rows(), DType::f32),
        op, "mean and rstd must be fp32 vectors with one element per row of x",
        {{"x", args.x}, {"mean", args.mean}, {"rstd", args.rstd}});
  dispatch(context, &Kernels::layernorm_forward, args, "layernorm_forward");
}

void layernorm_backward(const OpContext& context, const LayerNormBackward& args) {
  constexpr std::string_view op = "layernorm_backward";
  const std::int64_t hidden = args.x.columns();
  check(!args.x.empty() && is_float(args.x) && args.x.shape.rank() == 2, op,
        "x must be a matrix of fp32, bf16 or fp16", {{"x", args.x}});
  check(!args.dy.empty() && same_kind(args.x, args.dy) && !args.dx.empty() &&
            same_kind(args.x, args.dx),
        op, "dy and dx must be as x", {{"x", args.x}, {"dy", args.dy}, {"dx", args.dx}});
  check(args.d_residual.empty() || same_kind(args.x, args.d_residual), op,
        "d_residual must be as x", {{"x", args.x}, {"d_residual", args.d_residual}});
  check(is_vector(args.weight, hidden, DType::f32) && is_vector(args.dweight, hidden, DType::f32) &&
            is_vector(args.dbias, hidden, DType::f32),
        op, "weight, dweight and dbias must be fp32 vectors with one element per column of x",
        {{"x", args.x}, {"weight", args.weight}, {"dweight", args.dweight}, {"dbias", args.dbias}});
  check(is_vector(args.mean, args.x.rows(), DType::f32) &&
            is_vector(args.rstd, args.x.rows(), DType::f32),
        op, "mean and rstd must be fp32 vectors with one element per row of x",
        {{"x", args.x}, {"mean", args.mean}, {"rstd", args.rstd}});
  check(hidden * 8 <= scratch_bytes_per_thread, op, "a row is too long for the scratch memory",
        {{"x", args.x}});
  dispatch(context, &Kernels::layernorm_backward, args, "layernorm_backward");
}

}  // namespace trainctl
