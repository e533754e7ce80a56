#include "ops/dropout.h"

#include <string>

#include "ops/check.h"

namespace trainctl {

void dropout(const OpContext& context, const Dropout& args) {
  constexpr std::string_view op = "dropout";
  check(!args.x.empty() && is_float(args.x) && args.x.shape.rank() == 2, op,
        "x must be a matrix of fp32, bf16 or fp16", {{"x", args.x}});
  check(is_vector(args.global_token, args.x.rows(), DType::i64), op,
        "global_token must be an i64 vector with one element per row of x",
        {{"x", args.x}, {"global_token", args.global_token}});
  if (args.first_feature < 0 || args.first_feature + args.x.columns() > args.features) {
    fail_check(op,
               "x does not fit into " + std::to_string(args.features) + " features at feature " +
                   std::to_string(args.first_feature),
               {{"x", args.x}});
  }
  check(args.key.state != nullptr, op, "key.state is missing", {{"x", args.x}});
  if (!(args.key.probability > 0.0F && args.key.probability < 1.0F)) {
    fail_check(op, "probability " + std::to_string(args.key.probability) + " is not in (0, 1)",
               {{"x", args.x}});
  }
  dispatch(context, &Kernels::dropout, args, op);
}

}  // namespace trainctl
