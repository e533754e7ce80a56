#include "ops/adamw.h"

#include "ops/check.h"

namespace trainctl {

namespace {

void check_call(const AdamW& args) {
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
}

}  // namespace

void adamw(const OpContext& context, const Calls<AdamW>& calls) {
  for (const AdamW& args : calls.list()) check_call(args);
  dispatch(context, &Kernels::adamw, calls, "adamw");
}

}  // namespace trainctl
