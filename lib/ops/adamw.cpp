#include "ops/adamw.h"

#include "ops/check.h"

namespace trainctl {

void adamw(const OpContext& context, const AdamW& args) {
  const std::int64_t count = args.parameter.numel();
  const auto is_moment = [count](const Tensor& x) {
    return is_vector(x, count, DType::f32) || is_vector(x, count, DType::bf16);
  };
  check(is_vector(args.parameter, count, DType::f32) &&
            is_vector(args.gradient, count, DType::f32) && is_moment(args.m) && is_moment(args.v),
        "adamw",
        "parameter and gradient must be fp32 vectors of one length, m and v fp32 or bf16 ones",
        {{"parameter", args.parameter}, {"gradient", args.gradient}, {"m", args.m}, {"v", args.v}});
  check(is_copy(args.compute, count), "adamw",
        "compute must be a bf16 or fp16 vector as long as parameter",
        {{"parameter", args.parameter}, {"compute", args.compute}});
  check(args.state != nullptr, "adamw", "state must be given", {});
  dispatch(context, &Kernels::adamw, args, "adamw");
}

}  // namespace trainctl
