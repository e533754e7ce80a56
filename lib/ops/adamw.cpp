#include "ops/adamw.h"

#include "ops/check.h"

namespace trainctl {

namespace {

void check_call(const AdamW& args) {
  const std::int64_t count = args.parameter.numel();
  check(is_fp32_or_bf16(args.parameter, count) && is_fp32_or_bf16(args.gradient, count) &&
            is_fp32_or_bf16(args.m, count) && is_fp32_or_bf16(args.v, count),
        "adamw", "parameter, gradient, m and v must be fp32 or bf16 vectors of one length",
        {{"parameter", args.parameter}, {"gradient", args.gradient}, {"m", args.m}, {"v", args.v}});
  check(is_copy(args.compute, args.parameter), "adamw",
        "compute must be a bf16 or fp16 vector as long as parameter, which is fp32, or absent",
        {{"parameter", args.parameter}, {"compute", args.compute}});
  check(args.state != nullptr, "adamw", "state must be given", {});
}

}  // namespace

void adamw(const OpContext& context, const Calls<AdamW>& calls) {
  for (const AdamW& args : calls.list()) check_call(args);
  dispatch(context, &Kernels::adamw, calls, "adamw");
}

}  // namespace trainctl
