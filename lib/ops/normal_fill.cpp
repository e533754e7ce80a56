#include "ops/normal_fill.h"

#include "ops/check.h"

namespace trainctl {

void normal_fill(const OpContext& context, const NormalFill& args) {
  check(!args.x.empty() && (args.x.dtype == DType::f32 || args.x.dtype == DType::bf16),
        "normal_fill", "x must be fp32 or bf16", {{"x", args.x}});
  check(args.first >= 0, "normal_fill", "first must not be negative", {{"x", args.x}});
  dispatch(context, &Kernels::normal_fill, args, "normal_fill");
}

}  // namespace trainctl
