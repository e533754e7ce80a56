#include "ops/largest.h"

#include "ops/check.h"

namespace trainctl {

void largest(const OpContext& context, const Largest& args) {
  check(!args.x.empty() && args.x.dtype == DType::f32 && is_vector(args.key, 1, DType::i32),
        "largest", "x must be fp32, and key one i32", {{"x", args.x}, {"key", args.key}});
  dispatch(context, &Kernels::largest, args, "largest");
}

}  // namespace trainctl
