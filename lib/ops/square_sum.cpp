#include "ops/square_sum.h"

#include "ops/check.h"

namespace trainctl {

void square_sum(const OpContext& context, const SquareSum& args) {
  check(is_fp32_or_bf16(args.x, args.x.numel()), "square_sum", "x must be an fp32 or bf16 vector",
        {{"x", args.x}});
  check(args.result != nullptr, "square_sum", "result must be given", {});
  dispatch(context, &Kernels::square_sum, args, "square_sum");
}

}  // namespace trainctl
