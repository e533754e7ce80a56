#include "ops/scaled_sum.h"

#include "ops/check.h"

namespace trainctl {

void scaled_sum(const OpContext& context, const ScaledSum& args) {
  const auto fits = [&](const Tensor& one) {
    return !one.empty() && one.shape == args.x.shape &&
           (one.dtype == DType::f32 || one.dtype == DType::bf16);
  };
  check(fits(args.x) && (args.y.empty() || fits(args.y)) && fits(args.z), "scaled_sum",
        "x, z and y, where it is given, must have the same shape, in fp32 or bf16",
        {{"x", args.x}, {"y", args.y}, {"z", args.z}});
  dispatch(context, &Kernels::scaled_sum, args, "scaled_sum");
}

}  // namespace trainctl
