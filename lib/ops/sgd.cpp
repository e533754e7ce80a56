#include "ops/sgd.h"

#include "ops/check.h"

namespace trainctl {

namespace {

void check_call(const Sgd& args) {
  const std::int64_t count = args.parameter.numel();
  check(is_fp32_or_bf16(args.parameter, count) && is_fp32_or_bf16(args.gradient, count), "sgd",
        "parameter and gradient must be fp32 or bf16 vectors of one length",
        {{"parameter", args.parameter}, {"gradient", args.gradient}});
  check(args.momentum.empty() ? args.coefficient == 0 : is_vector(args.momentum, count, DType::f32),
        "sgd", "momentum must be an fp32 vector as long as parameter, or absent with coefficient 0",
        {{"parameter", args.parameter}, {"momentum", args.momentum}});
  check(is_copy(args.compute, args.parameter), "sgd",
        "compute must be a bf16 or fp16 vector as long as parameter, which is fp32, or absent",
        {{"parameter", args.parameter}, {"compute", args.compute}});
  check(args.state != nullptr, "sgd", "state must be given", {});
}

}  // namespace

void sgd(const OpContext& context, const Calls<Sgd>& calls) {
  for (const Sgd& args : calls.list()) check_call(args);
  dispatch(context, &Kernels::sgd, calls, "sgd");
}

}  // namespace trainctl
