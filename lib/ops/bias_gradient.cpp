#include "ops/bias_gradient.h"

#include "ops/check.h"

namespace trainctl {

void bias_gradient(const OpContext& context, const BiasGradient& args) {
  check(!args.dy.empty() && is_float(args.dy) && args.dy.shape.rank() == 2, "bias_gradient",
        "dy must be a matrix of fp32, bf16 or fp16", {{"dy", args.dy}});
  check(is_vector(args.db, args.dy.columns(), DType::f32), "bias_gradient",
        "db must be an fp32 vector with one element per column of dy",
        {{"dy", args.dy}, {"db", args.db}});
  dispatch(context, &Kernels::bias_gradient, args, "bias_gradient");
}

}  // namespace trainctl
