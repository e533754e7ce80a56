#include "ops/add.h"

#include "ops/check.h"

namespace trainctl {

void add(const OpContext& context, const Add& args) {
  check(args.a.empty() || is_float(args.a), "add", "a must be fp32, bf16 or fp16", {{"a", args.a}});
  const bool adds = !args.y.empty() && is_float(args.y) && !args.b.empty() &&
                    args.b.shape == args.y.shape &&
                    (args.b.dtype == args.y.dtype || args.b.dtype == DType::f32);
  check(adds && (args.a.empty() || same_kind(args.a, args.y)), "add",
        "a, b and y must have the same shape, a and y the same type, b that type or fp32",
        {{"a", args.a}, {"b", args.b}, {"y", args.y}});
  dispatch(context, &Kernels::add, args, "add");
}

}  // namespace trainctl
