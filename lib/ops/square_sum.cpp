#include "ops/square_sum.h"

#include "ops/check.h"

namespace trainctl {

namespace {

void check_call(const SquareSum& args) {
  check(is_fp32_or_bf16(args.x, args.x.numel()), "square_sum", "x must be an fp32 or bf16 vector",
        {{"x", args.x}});
  check(args.result != nullptr, "square_sum", "result must be given", {});
}

}  // namespace

void square_sum(const OpContext& context, const Calls<SquareSum>& calls) {
  for (const SquareSum& args : calls.list()) check_call(args);
  dispatch(context, &Kernels::square_sum, calls, "square_sum");
}

}  // namespace trainctl
