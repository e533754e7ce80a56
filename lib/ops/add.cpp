#include "ops/add.h"

#include "ops/check.h"

namespace trainctl {

void add(const OpContext& context, const Add& args) {
  check(!args.a.empty() && is_float(args.a), "add", "a must be fp32, bf16 or fp16",
        {{"a", args.a}});
  check(
      !args.b.empty() && !args.y.empty() && same_kind(args.a, args.b) && same_kind(args.a, args.y),
      "add", "a, b and y must have the same shape and type",
      {{"a", args.a}, {"b", args.b}, {"y", args.y}});
  dispatch(context, &Kernels::add, args, "add");
}

}  // namespace trainctl
