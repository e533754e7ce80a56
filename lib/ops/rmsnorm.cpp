#include "ops/rmsnorm.h"

#include "base/scratch.h"
#include "ops/check.h"

namespace trainctl {

void rmsnorm_forward(const OpContext& context, const RmsNormForward& args) {
  constexpr std::string_view op = "rmsnorm";
  check(!args.x.empty() && is_float(args.x) && args.x.shape.rank() == 2, op,
        "x must be a matrix of fp32, bf16 or fp16", {{"x", args.x}});
  check(!args.y.empty() && same_kind(args.x, args.y), op, "y must be as x",
        {{"x", args.x}, {"y", args.y}});
  check(args.residual.empty() ||
            (same_kind(args.x, args.residual) && !args.sum.empty() && same_kind(args.x, args.sum)),
        op, "residual and sum must be as x",
        {{"x", args.x}, {"residual", args.residual}, {"sum", args.sum}});
  check(is_vector(args.weight, args.x.columns(), DType::f32), op,
        "weight must be an fp32 vector with one element per column of x",
        {{"x", args.x}, {"weight", args.weight}});
  check(is_vector(args.rstd, args.x.rows(), DType::f32), op,
        "rstd must be an fp32 vector with one element per row of x",
        {{"x", args.x}, {"rstd", args.rstd}});
  dispatch(context, &Kernels::rmsnorm_forward, args, "rmsnorm_forward");
}

void rmsnorm_backward(const OpContext& context, const RmsNormBackward& args) {
  constexpr std::string_view op = "rmsnorm_backward";
  const std::int64_t hidden = args.x.columns();
  check(!args.x.empty() && is_float(args.x) && args.x.shape.rank() == 2, op,
        "x must be a matrix of fp32, bf16 or fp16", {{"x", args.x}});
  check(!args.dy.empty() && same_kind(args.x, args.dy) && !args.dx.empty() &&
            same_kind(args.x, args.dx),
        op, "dy and dx must be as x", {{"x", args.x}, {"dy", args.dy}, {"dx", args.dx}});
  check(args.d_residual.empty() || same_kind(args.x, args.d_residual), op,
        "d_residual must be as x", {{"x", args.x}, {"d_residual", args.d_residual}});
  check(is_vector(args.weight, hidden, DType::f32) && is_vector(args.dweight, hidden, DType::f32),
        op, "weight and dweight must be fp32 vectors with one element per column of x",
        {{"x", args.x}, {"weight", args.weight}, {"dweight", args.dweight}});
  check(is_vector(args.rstd, args.x.rows(), DType::f32), op,
        "rstd must be an fp32 vector with one element per row of x",
        {{"x", args.x}, {"rstd", args.rstd}});
  check(hidden * 4 <= scratch_bytes_per_thread, op, "a row is too long for the scratch memory",
        {{"x", args.x}});
  dispatch(context, &Kernels::rmsnorm_backward, args, "rmsnorm_backward");
}

}  // namespace trainctl
