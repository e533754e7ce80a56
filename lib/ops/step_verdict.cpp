#include "ops/step_verdict.h"

#include "ops/check.h"

namespace trainctl {

void step_verdict(const OpContext& context, const StepVerdict& args) {
  const Tensor& sums = args.square_sums;
  check(!sums.empty() && sums.dtype == DType::f64 && sums.shape.rank() == 2 && sums.shape[0] > 0 &&
            sums.shape[1] == 2,
        "step_verdict", "square_sums must be f64 [ranks, 2]", {{"square_sums", sums}});
  check(args.state != nullptr, "step_verdict", "state must be given", {});
  dispatch(context, &Kernels::step_verdict, args, "step_verdict");
}

}  // namespace trainctl
