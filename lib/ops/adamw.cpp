#include "ops/adamw.h"

#include "ops/check.h"

namespace trainctl {

void adamw(const OpContext& context, const AdamW& args) {
  const std::int64_t count = args.parameter.numel();
  check(is_vector(args.parameter, count, DType::f32) && is_fp32_or_bf16(args.gradient, count) &&
            is_fp32_or_bf16(args.m, count) && is_fp32_or_bf16(args.v, count),
        "adamw",
        "parameter must be an fp32 vector, gradient, m and v fp32 or bf16 ones of its length",
        {{"parameter", args.parameter}, {"gradient", args.gradient}, {"m", args.m}, {"v", args.v}});
  check(is_copy(args.compute, count), "adamw",
        "compute must be a bf16 or fp16 vector as long as parameter",
        {{"parameter", args.parameter}, {"compute", args.compute}});
  check(args.state != nullptr, "adamw", "state must be given", {});
  dispatch(context, &Kernels::adamw, args, "adamw");
}

}  // namespace trainctl
