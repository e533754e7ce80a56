#include "ops/square_sum.h"

#include "ops/check.h"

namespace trainctl {

void square_sum(const OpContext& context, const SquareSum& args) {
  check(!args.x.empty() && args.x.dtype == DType::f32, "square_sum", "x must be fp32",
        {{"x", args.x}});
  check(args.result != nullptr, "square_sum", "result must be given", {});
  dispatch(context, &Kernels::square_sum, args, "square_sum");
}

}  // namespace trainctl
