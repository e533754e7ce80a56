#include "ops/cast.h"

#include "ops/check.h"

namespace trainctl {

void cast(const OpContext& context, const Cast& args) {
  check(!args.x.empty() && !args.y.empty() && is_float(args.x) && is_float(args.y), "cast",
        "x and y must be fp32, bf16 or fp16", {{"x", args.x}, {"y", args.y}});
  check(args.x.numel() == args.y.numel(), "cast", "x and y must have as many elements",
        {{"x", args.x}, {"y", args.y}});
  dispatch(context, &Kernels::cast, args, "cast");
}

}  // namespace trainctl
