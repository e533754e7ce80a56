#include "ops/largest.h"

#include "ops/check.h"

namespace trainctl {

void largest(const OpContext& context, const Largest& args) {
  check(!args.x.empty() && args.x.dtype == DType::f32 && is_vector(args.key, 1, DType::i32),
        "largest", "x must be fp32, and key one i32", {{"x", args.x}, {"key", args.key}});
  const AttentionShape& shape = args.shape;
  const Shape numbers{shape.sequences, shape.heads, shape.query_length};
  check(
      args.real.empty() || (args.x.shape == numbers &&
                            is_vector(args.real, shape.sequences * shape.query_length, DType::u8)),
      "largest",
      "with real, x must be [sequences, heads, query_length], and real u8, one per query",
      {{"x", args.x}, {"real", args.real}});
  dispatch(context, &Kernels::largest, args, "largest");
}

}  // namespace trainctl
